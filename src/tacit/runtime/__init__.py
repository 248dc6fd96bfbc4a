"""Rounds that run: the I/O-free round, its inbox and journal, and the simulator that plays all parties in one process."""
