"""Benchmarks of questions with gold answers: GAIA, WebWalkerQA, xBench-DeepSearch, TaskCraft and plain JSON Lines."""
