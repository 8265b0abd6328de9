"""Governed memory: what a memory is worth, and what may become one."""
