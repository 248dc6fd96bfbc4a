"""Models: named ones, PyTorch modules, and the networks of the papers."""
