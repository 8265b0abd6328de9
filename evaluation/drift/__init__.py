"""Memory drift: long streams with noisy outcomes into banks that are governed, filtered once, or not at all."""
