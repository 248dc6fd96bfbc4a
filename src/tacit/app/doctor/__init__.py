"""Checks of a party's machine and of the paths to its peers, before the first round."""
