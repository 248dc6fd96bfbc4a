"""Integrations: other frameworks that carry the messages of Tacit rounds."""
