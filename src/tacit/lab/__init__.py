"""Research on the five papers: their tables and figures, attacks, and comparisons. Deployments do not need it."""
