"""What people touch: the command line and the demo behind it."""
