"""Flower app whose nodes contribute known vectors, and whose server writes down their average."""
