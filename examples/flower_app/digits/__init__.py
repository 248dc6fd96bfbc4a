"""Flower app: ten nodes learn to read digits, and the server sees only the sum of their models."""
