"""Task agents of one's own that know nothing of memroute: a Python function, and a command."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from providers.errors import AgentError, ConfigError
from providers.tools import Tool
from providers.types import Step, Task, Trajectory
from synth.agents.base import AgentSession
from synth.importers import openai_chat
from synth.named import load_named

LAST_CALL = "The step limit is reached: answer now, with the best that you have."
"""What tools say from then on."""


class FunctionAgent:
    """Calls `package.module:function` as `function(question, memory, tools)`; it may be a coroutine.

    `tools` are callables by name that take a tool's arguments by name and give text, to be awaited where the function
    is a coroutine; each call is a step. What it returns is the answer, or None.
    """

    name = "function"

    def __init__(self, function: str = "") -> None:
        self._function, self._name = load_named("agent's function", function, "`function`"), function

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        """Working memory that the session gives at a step stands under the text of the call before it."""
        steps = _Steps(tools, session, max_steps)
        await steps.look()
        asynchronous = inspect.iscoroutinefunction(self._function)
        callables = {tool.name: steps.coroutine(tool) if asynchronous else steps.blocking(tool) for tool in tools}
        if asynchronous:
            answer = await self._function(task.question, session.memory, callables)
        else:
            answer = await asyncio.to_thread(self._function, task.question, session.memory, callables)
        if answer is not None and not isinstance(answer, str):
            raise AgentError(
                f"{self._name} returned {type(answer).__name__}: let it return its answer as text, or None."
            )
        return Trajectory.make(
            task_id=task.id,
            question=task.question,
            agent=self.name,
            seed=seed,
            settings={"function": self._name, "max_steps": max_steps},
            steps=tuple(steps.taken),
            answer=answer,
            status=tuple(f"step {step.index}: {step.error}" for step in steps.taken if step.error),
            injections=session.injections,
            usage={"steps": float(len(steps.taken))},
        )


class _Steps:
    """The calls of one run as steps."""

    def __init__(self, tools: Sequence[Tool], session: AgentSession, max_steps: int) -> None:
        self._session, self._max_steps = session, max_steps
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self.taken: list[Step] = []

    async def look(self) -> str:
        """The working memory before the next call."""
        return await self._session.step(tuple(self.taken))

    def coroutine(self, tool: Tool) -> Callable[..., Any]:
        """The tool as a coroutine function."""

        async def call(**arguments: Any) -> str:
            return await self._call(tool, arguments)

        return call

    def blocking(self, tool: Tool) -> Callable[..., str]:
        """The tool as a plain function, called from another thread."""

        def call(**arguments: Any) -> str:
            return asyncio.run_coroutine_threadsafe(self._call(tool, arguments), self._loop).result()

        return call

    async def _call(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """One call at a time: working memory comes between them."""
        async with self._turn:
            if len(self.taken) >= self._max_steps:
                return LAST_CALL
            started, clock = time.time(), time.perf_counter()
            result = await tool.call(**arguments)
            self.taken.append(
                Step(
                    index=len(self.taken),
                    tool=tool.name,
                    arguments=arguments,
                    observation=result.observation,
                    error=result.error,
                    started=started,
                    seconds=time.perf_counter() - clock,
                    lineage=result.lineage,
                )
            )
            working = await self.look() if len(self.taken) < self._max_steps else ""
            notes = f"\n\nNotes from your steps so far:\n{working}" if working else ""
            return f"{result.observation}{notes}"


class CommandAgent:
    """Runs a command per task: JSON on standard input, a transcript as OpenAI chat messages on standard output.

    Input: `{"id", "question", "attachments", "memory", "tools", "seed", "max_steps"}`; the memory's text is for the
    prompt, the tools are named only: a command has its own. Output: `{"messages": [...]}`, as `memroute import` reads
    it, or `{"answer": ...}` alone. Working memory is not offered: there is no moment between the steps.
    """

    name = "command"

    def __init__(self, command: Sequence[str] = (), output_bytes: int = 20_000_000) -> None:
        if isinstance(command, str) or not command:
            raise ConfigError("the command agent needs `command`, a list: the program, then its arguments")
        self._command, self._most = [str(part) for part in command], output_bytes

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        """Raises AgentError where the command fails or its output is no transcript."""
        await session.step(())
        given = {
            "id": task.id,
            "question": task.question,
            "attachments": list(task.attachments),
            "memory": session.memory,
            "tools": [{"name": tool.name, "doc": tool.doc} for tool in tools],
            "seed": seed,
            "max_steps": max_steps,
        }
        said = _transcript(await self._output(given), self._command[0])
        imported = _imported_run(said, task, self._command[0])
        return Trajectory.make(
            task_id=task.id,
            question=task.question,
            agent=self.name,
            seed=seed,
            settings={"command": self._command, "max_steps": max_steps},
            steps=imported.steps if imported is not None else (),
            answer=said.get("answer") if imported is None else said.get("answer", imported.answer),
            status=imported.status if imported is not None else (),
            injections=session.injections,
            usage={"steps": float(len(imported.steps)) if imported is not None else 0.0},
        )

    async def _output(self, given: Mapping[str, Any]) -> bytes:
        """What the command writes. Its end is waited for; a run that takes too long is ended by the episode's limit."""
        try:
            process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        except OSError as error:
            raise AgentError(f"The agent's command {self._command[0]!r} cannot be started ({error}).") from error
        try:
            out, err = await process.communicate(json.dumps(given, ensure_ascii=False).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise AgentError(f"{self._command[0]} ended with {process.returncode}: {' '.join(last)[:300]}")
        if len(out) > self._most:
            raise AgentError(f"{self._command[0]} wrote more than {self._most / 1e6:g} MB: let it write less.")
        return out


def _transcript(out: bytes, command: str) -> Mapping[str, Any]:
    try:
        said = json.loads(out)
    except (ValueError, RecursionError) as error:
        raise AgentError(f"{command} wrote no JSON ({error}): let it write one object with `messages`.") from error
    answer = said.get("answer") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not ({"messages", "answer"} & said.keys()) or not isinstance(answer, str | None):
        raise AgentError(f"{command} wrote no transcript: let it write one object with `messages`, or with `answer`.")
    return said


def _imported_run(said: Mapping[str, Any], task: Task, command: str) -> Trajectory | None:
    """The steps and the answer of a transcript; None where it is an answer alone."""
    if "messages" not in said:
        return None
    try:
        messages = [{"role": "user", "content": task.question}, *_without_opening(said["messages"])]
        return openai_chat.finished({"task_id": task.id, "agent": command, "messages": messages}).trajectory
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise AgentError(f"{command} wrote messages that cannot be read ({error!r}).") from error


def _without_opening(messages: Any) -> list[Any]:
    """The turns from the agent's first one on: what stood before is the prompt."""
    turns = list(messages)
    first = next((place for place, one in enumerate(turns) if one.get("role") == "assistant"), len(turns))
    return turns[first:]
