"""One file per long-term memory system."""
