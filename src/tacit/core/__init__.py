"""The language every room speaks. Imports nothing else of Tacit."""
