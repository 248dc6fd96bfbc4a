"""Auditor of Flower apps: reads the source of an app, without running it, and audits what its server can learn."""
