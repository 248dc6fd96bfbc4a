"""Terms, messages and effects that every other package uses. Imports nothing else of Tacit."""
