"""The process that runs skill code: a warm server that forks one child per call.

Started by `providers.skills` as a script (`python -I -S sandbox.py FD`), so it imports the standard library alone.
FD is a Unix socket over which it is handed one connected socket per call; the server ends when that socket closes.
A child speaks JSON lines: it reads the request, asks for tool calls, and ends with `result` or `error`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO, cast

BUILTINS: dict[str, Any] = {
    known.__name__: known
    for known in (
        *(abs, all, any, bool, dict, enumerate, float, int, isinstance, len, list, max, min, range, reversed, round),
        *(set, sorted, str, sum, tuple, zip),
        *(IndexError, KeyError, TypeError, ValueError, ZeroDivisionError),
    )
}
"""All that skill code finds built in. Names, not objects, are what `providers.skills.check_code` allows."""

READERS = ("fields", "links", "names", "number", "title")
"""Functions of `providers.page_text` that skill code may call."""


class CallLimitError(BaseException):
    """The skill asked for more tool calls than it may; no handler in skill code can name it."""


def answer(channel: BinaryIO, readers: ModuleType, confinement: ModuleType) -> None:
    """Run one request read from `channel` under its limits, and write its result or error."""
    request = json.loads(channel.readline())
    try:
        confinement.confine(request["cpu_seconds"], request["memory_bytes"])
        reply = {"result": _run(request, channel, readers)}
        if len(_line(reply)) > request["output_bytes"]:
            reply = {"error": f"its result is longer than {request['output_bytes']} bytes"}
    except BaseException as error:  # noqa: BLE001 - whatever skill code raises is its result
        reply = {"error": f"{type(error).__name__}: {error}"[:300]}
    channel.write(_line(reply))
    channel.flush()


def _run(request: dict[str, Any], channel: BinaryIO, readers: ModuleType) -> str:
    scope: dict[str, Any] = {"__builtins__": BUILTINS, **{name: getattr(readers, name) for name in READERS}}
    exec(compile(request["code"], "<skill>", "exec"), scope)
    value = scope[request["name"]](_tools(request, channel), **request["arguments"])
    if isinstance(value, list | tuple):
        return "; ".join(str(part) for part in value)
    if value is None:
        raise ValueError("the skill returned nothing")
    return str(value)


def _tools(request: dict[str, Any], channel: BinaryIO) -> SimpleNamespace:
    """The task's tools as skill code calls them, by position or by name: `tools.search("x")` gives text."""
    left = request["max_calls"]

    def tool(name: str, parameters: list[str]) -> Callable[..., str]:
        def call(*values: Any, **named: Any) -> str:
            nonlocal left
            if unknown := [key for key in named if key not in parameters] or len(values) > len(parameters):
                raise TypeError(f"{name} takes {', '.join(parameters)}; got {unknown if named else len(values)}")
            if left == 0:
                raise CallLimitError(f"more than {request['max_calls']} tool calls")
            left -= 1
            line = _line({"call": name, "arguments": {**dict(zip(parameters, values, strict=False)), **named}})
            if len(line) > request["output_bytes"]:
                raise ValueError(f"the arguments of {name} are longer than {request['output_bytes']} bytes")
            channel.write(line)
            channel.flush()
            reply = json.loads(channel.readline())
            if "refused" in reply:
                raise TypeError(reply["refused"])
            return cast(str, reply["text"])

        return call

    return SimpleNamespace(**{name: tool(name, parameters) for name, parameters in request["tools"].items()})


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _beside(name: str) -> ModuleType:
    """The module `name` from its file beside this one; this process has no package path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(control: socket.socket) -> None:
    """Fork one child for every socket that arrives; return when `control` closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    readers, confinement = _beside("page_text"), _beside("confine")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            try:
                answer(cast(BinaryIO, socket.socket(fileno=descriptors[0]).makefile("rwb")), readers, confinement)
            finally:
                os._exit(0)
        os.close(descriptors[0])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
