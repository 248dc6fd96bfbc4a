"""Differential privacy of training runs: the noise plan, noise on gradients, and the ledger of the data."""
