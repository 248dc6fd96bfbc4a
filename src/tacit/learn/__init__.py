"""Something small to learn, so that averaging has a purpose: data, ways to split it, and a model."""
