"""Training runs: assembling a scenario, local work, rounds, checkpoints and the audit of a run."""
