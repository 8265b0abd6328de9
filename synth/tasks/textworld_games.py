"""The games of TextWorldExpress: one Java machine that runs them all, each game played by its seed.

The package's own Python class starts a Java machine per game; its Java side is asked here directly, through `py4j`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from providers.errors import SuiteError
from synth.tasks.base import DataMissing

HEAP = "-Xmx512m"
END_SECONDS = 5.0


@dataclass(frozen=True)
class Scene:
    """What a game shows after an action."""

    text: str
    actions: tuple[str, ...]
    """All that can be done now, sorted: the game gives them in no order."""
    score: float
    """From 0 to 1, by the game itself."""
    won: bool
    lost: bool

    @property
    def over(self) -> bool:
        return self.won or self.lost


class Game(Protocol):
    """One game being played; calls block."""

    @property
    def description(self) -> str: ...

    @property
    def opening(self) -> Scene: ...

    def step(self, action: str) -> Scene: ...


class Machine(Protocol):
    """Whatever makes games; inside `start` and `stop`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def game(self, name: str, settings: str, fold: str, seed: int) -> Game: ...


class JavaMachine:
    """A Java machine of its own with the package's jar; its games may be played from several threads."""

    def __init__(self) -> None:
        self._gateway: Any = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Does nothing where it runs already.

        Raises:
            DataMissing: the package or Java is not installed.
        """
        if self._gateway is not None:
            return
        try:
            from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
            from textworld_express.constants import BASEPATH, JAR_PATH
        except ImportError as error:
            raise DataMissing(
                f"The textworld suite needs TextWorldExpress ({error}): pip install 'memroute[textworld]'."
            ) from error
        try:
            port, self._process = launch_gateway(
                classpath=JAR_PATH, die_on_exit=True, cwd=BASEPATH, javaopts=[HEAP], return_proc=True
            )
        except OSError as error:
            raise DataMissing(f"The textworld suite needs Java 8 or newer on the path ({error}).") from error
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(auto_field=True, port=port), java_process=self._process
        )

    def stop(self) -> None:
        gateway, process = self._gateway, self._process
        self._gateway, self._process = None, None
        if gateway is not None:
            gateway.shutdown()
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()  # `die_on_exit`: it ends when nothing can be read any more
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def game(self, name: str, settings: str, fold: str, seed: int) -> JavaGame:
        """Raises SuiteError where the games do not run, or have no such game or setting."""
        if self._gateway is None:
            raise SuiteError("The games are not running: use the suite's tools inside `async with`.")
        return JavaGame(self._gateway.jvm.textworldexpress.runtime.PythonInterface(), name, settings, fold, seed)


class JavaGame:
    """One game at its opening scene."""

    def __init__(self, server: Any, name: str, settings: str, fold: str, seed: int) -> None:
        self._server = server
        problem = self._call("load", name, settings)
        if problem:
            raise SuiteError(f"TextWorldExpress refuses the game {name} with {settings!r}: {problem}")
        self.opening = _scene(json.loads(self._call("generateNewGameJSON", seed, fold, False)))
        self.description = str(self._call("getTaskDescription"))

    def step(self, action: str) -> Scene:
        return _scene(json.loads(self._call("stepJSON", action)))

    def _call(self, name: str, *arguments: object) -> Any:
        from py4j.protocol import Py4JError

        try:
            return getattr(self._server, name)(*arguments)
        except (Py4JError, OSError) as error:
            first = next(iter(str(error).splitlines()), "")
            raise SuiteError(f"The Java machine with the games failed ({first}): start the suite again.") from error


def _scene(shown: Mapping[str, Any]) -> Scene:
    return Scene(
        text=str(shown["observation"]).strip(),
        actions=tuple(sorted(shown["validActions"])),
        score=float(shown["score"]),
        won=bool(shown["tasksuccess"]),
        lost=bool(shown["taskfailure"]),
    )
