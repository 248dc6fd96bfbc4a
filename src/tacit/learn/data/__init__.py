"""Data sets, splits and samples."""
