"""Memories: what they keep, how they retrieve it, and the bank below them."""
