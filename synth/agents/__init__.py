"""Task agents."""
