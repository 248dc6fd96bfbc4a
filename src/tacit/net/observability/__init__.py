"""Metrics, traces, log lines and the status file of a node."""
