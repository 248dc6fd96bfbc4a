"""Search for the coalition, seed and dropouts to analyse, and for settings to propose."""
