"""Results in a terminal: tables, verdicts and progress."""
