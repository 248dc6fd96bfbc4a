"""Fault runs: federations whose processes are killed, frozen and disconnected (`python -m benchmarks faults`)."""
