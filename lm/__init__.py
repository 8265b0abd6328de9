"""Chat-model clients. This room imports no other room."""
