"""Ten nodes learn to read digits, and the server sees only the sum of what they learnt."""
