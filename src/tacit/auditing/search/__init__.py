"""Which coalition, seed and dropouts to analyse, and which settings to propose."""
