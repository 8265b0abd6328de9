"""Decisions on memory: what is decided, from which context, by which policy, and the session that carries it."""
