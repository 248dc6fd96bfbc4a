"""Tables and figures of paper 001, PPSGD (Pan et al. 2021)."""
