"""Scorers of the user's own: a command that is given the answer, and a Python function."""

from __future__ import annotations

import asyncio
import inspect
import json
from asyncio.subprocess import PIPE
from collections.abc import Sequence

from providers.errors import ConfigError, SuiteError
from providers.types import Outcome, Task
from synth.named import load_named
from synth.tasks.scorers.base import verdict

REASON = 300
"""Characters that are kept of what a command says."""


class Command:
    """Runs a command with `{"id", "question", "gold", "answer"}` as JSON on standard input.

    Exit code 0 is correct and 1 wrong; its first line of output is the reason. Any other code, a signal or more than
    `seconds` leaves the answer unscored.
    """

    def __init__(self, command: Sequence[str] = (), seconds: float = 60.0) -> None:
        if isinstance(command, str) or not command:
            raise ConfigError("the command scorer needs `command`, a list: the program, then its arguments")
        self._command, self._seconds = [str(part) for part in command], seconds

    async def score(self, task: Task, answer: str) -> Outcome:
        case = {"id": task.id, "question": task.question, "gold": task.gold, "answer": answer}
        try:
            process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        except OSError as error:
            raise SuiteError(f"The scoring command {self._command[0]!r} cannot be started ({error}).") from error
        try:
            async with asyncio.timeout(self._seconds):
                out, err = await process.communicate(json.dumps(case, ensure_ascii=False, default=str).encode())
        except TimeoutError:
            return Outcome(correct=None, reason=f"the command took more than {self._seconds:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = _first_line(out)
        if process.returncode in (0, 1):
            return verdict(process.returncode == 0, said)
        return Outcome(correct=None, reason=f"the command ended with {process.returncode}: {said or _first_line(err)}")


class Function:
    """Calls `package.module:function` with the task and the answer; it may be a coroutine.

    It returns True, False, None for unscored, or an Outcome.
    """

    def __init__(self, function: str = "") -> None:
        self._name = function
        self._function = load_named("scoring function", function, "`function`")

    async def score(self, task: Task, answer: str) -> Outcome:
        given = self._function(task, answer)
        if inspect.isawaitable(given):
            given = await given
        if isinstance(given, Outcome):
            return given
        if given is None:
            return Outcome(correct=None, reason=f"{self._name} did not say")
        if isinstance(given, bool):
            return verdict(given)
        raise SuiteError(f"{self._name} returned {given!r}: let it return True, False, None or an Outcome.")


def _first_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[0][:REASON] if lines else ""
