"""Scorers: whether an answer says what the gold one says."""
