"""Benchmarks of Tacit, measured next to comparable software in the same run."""
