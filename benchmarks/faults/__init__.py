"""Federations whose processes are killed, frozen and cut off, and what comes of it: `python -m benchmarks faults`."""
