"""Tables and figures of paper 004, CESAR (Biswas et al. 2024)."""
