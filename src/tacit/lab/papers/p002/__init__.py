"""Tables and figures of paper 002, Multi-RoundSecAgg (Ali et al. 2021)."""
