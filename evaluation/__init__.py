"""Policies compared on tasks: replay, metrics, statistics, report."""
