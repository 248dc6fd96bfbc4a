"""The state of a node on disk: index, log and blobs, written so that a crash loses nothing that was promised."""
