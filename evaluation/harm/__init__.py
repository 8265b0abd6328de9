"""Harm: what falsely promoted memories do to later tasks, and what the write gate keeps of it."""
