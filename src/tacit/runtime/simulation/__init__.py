"""Simulated rounds: all parties in one process, on a virtual clock, with planned faults and transcripts."""
