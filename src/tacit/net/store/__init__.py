"""State of a node on disk: index, log and blobs, written so that a crash loses no committed data."""
