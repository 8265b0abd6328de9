import pytest

import train.heads


@pytest.fixture
def quick_heads(monkeypatch):
    """Heads that choose among fewer settings, once: for tests of what is done with them."""
    monkeypatch.setattr(train.heads, "REPEATS", 1)
    monkeypatch.setattr(train.heads, "LOGISTIC_OPTIONS", train.heads.LOGISTIC_OPTIONS[4:11:6])
    monkeypatch.setattr(train.heads, "NEARNESS_OPTIONS", train.heads.NEARNESS_OPTIONS[4:5])
