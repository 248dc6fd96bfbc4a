"""Frames that were damaged, and what becomes of them: for fuzzing, by chance and guided by coverage."""
