"""Finished runs of other agents, read from their own formats into memories and routing tables."""
