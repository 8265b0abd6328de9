"""Log lines as a server writes them, for one test."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from serve.logs import log_as_json


@pytest.fixture
def json_logs() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    log_as_json(stream)
    yield stream
    structlog.reset_defaults()
    root.handlers = handlers
    root.setLevel(level)
