"""The page and the terminal table."""
