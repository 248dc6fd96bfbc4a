"""Findings as text and JSON. The only place of the auditor with sentences."""
