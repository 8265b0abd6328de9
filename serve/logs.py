"""One JSON object per line. Keys, texts and memories are never logged; ids and names are."""

from __future__ import annotations

import logging
from typing import TextIO

import structlog


def log_as_json(stream: TextIO, level: int = logging.INFO) -> None:
    """Set the format of this process's log lines: `memroute.serve` and, through the standard library, uvicorn's."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *shared,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # One line for every look at an engine would drown all others.
    logging.getLogger("httpx").setLevel(logging.WARNING)
