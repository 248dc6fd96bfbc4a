"""Models as vectors, and vectors as numbers that add up exactly."""
