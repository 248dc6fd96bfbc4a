"""What the server of a Flower app can learn, read from the source of the app without running it."""
