"""Which release of Tacit this is: the one place that says so. pyproject.toml reads it from here."""

RELEASE = "0.2.0"
