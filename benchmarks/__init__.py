"""Measurements of Tacit against its peers, side by side in one run."""
