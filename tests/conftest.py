"""Settings of all tests."""

from hypothesis import settings

settings.register_profile("memroute", deadline=None)  # a loaded machine is no failure
settings.load_profile("memroute")
