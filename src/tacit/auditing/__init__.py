"""The auditor: it runs the deployed protocols on symbols and computes what a coalition learns."""
