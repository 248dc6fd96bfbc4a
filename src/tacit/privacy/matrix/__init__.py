"""Matrix accountant: the privacy loss of a whole run from the combinations of noisy vectors that parties learn."""
