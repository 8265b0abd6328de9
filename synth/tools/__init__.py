"""Tools of a research agent: search the web, open pages, read files, look at images, listen to recordings."""
