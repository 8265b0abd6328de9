"""Task suites: where tasks come from, how answers are scored, which tools a task offers."""
