"""Other frameworks that carry Tacit rounds."""
