"""Attacks over the wire on a running federation (`python -m benchmarks intruders`)."""
