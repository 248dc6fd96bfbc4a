"""Execution of rounds: the I/O-free round, its inbox and journal, simulations in one process, and shards."""
