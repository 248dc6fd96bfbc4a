"""Checks that a protocol treats numbers and keys as its run on symbols says."""
