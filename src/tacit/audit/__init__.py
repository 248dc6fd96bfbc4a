"""What a coalition can learn, computed from the code that runs."""
