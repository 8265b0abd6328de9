"""Judging memory decisions from what the agent then did (MemAgent B.2): by rules, or by a chat model."""
