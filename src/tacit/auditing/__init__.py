"""The auditor: it runs the deployed protocols on symbols instead of numbers, and computes what a coalition learns."""
