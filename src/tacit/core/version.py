"""Release number of Tacit. pyproject.toml reads it from here."""

RELEASE = "0.2.0"
