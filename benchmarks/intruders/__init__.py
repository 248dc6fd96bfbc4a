"""Whoever breaks into a federation that is at work, and what comes of it: `python -m benchmarks intruders`."""
