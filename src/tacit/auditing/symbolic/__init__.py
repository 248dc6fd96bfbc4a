"""The deployed code on symbols: keys are tokens, masks and vectors are unknowns, and the rest is as in a real run."""
