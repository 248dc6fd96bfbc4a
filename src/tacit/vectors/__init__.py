"""Models as vectors, and vectors as ring elements that add up exactly."""
