"""Routers trained from the dataset: the language model and the heads."""
