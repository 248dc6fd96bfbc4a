"""Attacks, each with a positive control that it must win against and a negative one that it must not."""
