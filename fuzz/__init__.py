"""Fuzzing of frames and messages, at random and guided by coverage."""
