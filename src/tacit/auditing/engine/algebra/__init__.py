"""Exact and approximate linear algebra on the forms that a coalition knows."""
