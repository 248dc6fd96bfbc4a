"""Attacks. Each is also run on a positive control, which it must break, and a negative one, which it must not."""
