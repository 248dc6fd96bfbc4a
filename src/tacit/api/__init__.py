"""What people call: one average, or round after round, with the audit in front of both."""
