"""Research on the five papers: their tables and figures, attacks, and comparisons. Not needed to deploy."""
