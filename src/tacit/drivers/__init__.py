"""What runs protocol coroutines. The only room that does input and output."""
