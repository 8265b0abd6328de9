"""Settings of all tests."""

import os

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

settings.register_profile("memroute", deadline=None)  # a loaded machine is no failure
settings.load_profile("memroute")
