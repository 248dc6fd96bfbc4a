"""Sparse models: what a coalition learns at an entry, by which parties select it."""
