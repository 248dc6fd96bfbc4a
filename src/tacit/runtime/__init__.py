"""Rounds that run: the I/O-free round, its inbox and journal, and the simulator of all parties in one process."""
