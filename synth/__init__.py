"""Tasks, task agents, episodes, forced exploration, rewards and the data that routers are trained on."""
