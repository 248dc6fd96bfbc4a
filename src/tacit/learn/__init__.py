"""Learning with private averaging: data, models, scenarios and training."""
