"""The command line, the local page and the reports."""
