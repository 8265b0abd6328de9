"""Skills: stored Python functions over the task's tools, checked before they are kept and run in a sandbox.

A skill is one function `def name(tools, country: str, limit: int) -> str`. It calls the task's tools
(`tools.search("...")` gives the observation as text), reads pages with the readers of `providers.page_text`,
and returns text. Nothing else is within its reach: no import, no file, no network, no attribute of the interpreter.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from providers import sandbox
from providers.errors import ProviderError
from providers.tools import Tool, ToolResult
from providers.types import Lineage, SkillSpec

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ARGUMENT_TYPES: Mapping[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list[Any]}
CODE_CHARACTERS = 8_000
"""Longest code of a skill; a longer or deeper one could exhaust the parser itself."""

_NODES: tuple[type[ast.AST], ...] = (
    *(ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete),
    *(ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.Raise, ast.Try, ast.ExceptHandler),
    *(ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.IfExp, ast.Lambda),
    *(ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred),
    *(ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context),
)
_METHODS = frozenset(
    method for kind in (str, list, dict, set, int, float) for method in dir(kind) if not method.startswith("_")
) - {"format", "format_map"}
"""Methods of plain values. `format` is not among them: it reads attributes by name."""


def check_code(name: str, code: str) -> None:
    """Refuse with `ProviderError` what is not one function `name(tools, ...)` of plain, typed, harmless Python."""
    tree = _parsed(name, code)
    problem = next(_problems(name, tree), None)
    if problem is not None:
        raise ProviderError(f"Skill {name} {problem}.")


def calls_tools(skill: SkillSpec) -> bool:
    """Whether a skill's code uses the task's tools at all: one that does not can run anywhere."""
    return any(isinstance(node, ast.Name) and node.id == "tools" for node in ast.walk(_parsed(skill.name, skill.code)))


def _parsed(name: str, code: str) -> ast.Module:
    if len(code) > CODE_CHARACTERS:
        raise ProviderError(f"Skill {name} is {len(code):,} characters long: store at most {CODE_CHARACTERS:,}.")
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProviderError(f"Skill {name} is not valid Python ({error}): store code that parses.") from error


def _problems(name: str, tree: ast.Module) -> Iterator[str]:
    body = tree.body
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or body[0].name != name:
        yield f"must be exactly one function called {name}, and nothing beside it"
        return
    function = body[0]
    if name in sandbox.BUILTINS or name in sandbox.READERS or name == "tools":
        yield "has the name of something that skills are given: call it otherwise"
    yield from _signature_problems(function)
    known = {name, *sandbox.BUILTINS, *sandbox.READERS}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
    for node in ast.walk(function):
        yield from _node_problems(function, node, known)


def _signature_problems(function: ast.FunctionDef) -> Iterator[str]:
    given = function.args
    if not given.args or given.args[0].arg != "tools" or given.posonlyargs or given.vararg or given.kwarg:
        yield "must take `tools` first and then named arguments, without * or **"
    for argument in [*given.args[1:], *given.kwonlyargs]:
        kind = argument.annotation
        base = kind.value if isinstance(kind, ast.Subscript) else kind
        if not isinstance(base, ast.Name) or base.id not in ARGUMENT_TYPES:
            yield f"must annotate argument {argument.arg} as one of {', '.join(sorted(ARGUMENT_TYPES))}"
    if function.decorator_list:
        yield "must have no decorator"


def _node_problems(function: ast.FunctionDef, node: ast.AST, known: set[str]) -> Iterator[str]:
    if not isinstance(node, _NODES):
        yield f"uses {type(node).__name__}, which skills may not"
    elif isinstance(node, ast.FunctionDef) and node is not function:
        yield f"defines a second function, {node.name}"
    elif isinstance(node, ast.Attribute):
        of_tools = isinstance(node.value, ast.Name) and node.value.id == "tools"
        if (
            not isinstance(node.ctx, ast.Load)
            or node.attr.startswith("_")
            or (node.attr not in _METHODS and not of_tools)
        ):
            yield f"uses the attribute .{node.attr}, which skills may not"
    elif isinstance(node, ast.Name):
        if node.id.startswith("__") or node.id not in known:
            yield f"uses the name {node.id}, which skills do not have"
        if node.id == "tools" and not isinstance(node.ctx, ast.Load):
            yield "gives `tools` another value"
    elif isinstance(node, ast.arg) and (
        node.arg.startswith("__") or (node.arg == "tools" and node is not function.args.args[0])
    ):
        yield f"has an argument called {node.arg}, which is taken"
    elif isinstance(node, ast.ExceptHandler):
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if node.name == "tools" or not all(isinstance(kind, ast.Name) and kind.id.endswith("Error") for kind in caught):
            yield "has an except clause that does not name the errors it expects"
    elif isinstance(node, ast.Try) and node.finalbody:
        yield "uses finally, which skills may not"


def typed_arguments(skill: SkillSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in the types that the skill's code annotates, `"3"` for an int included.

    ProviderError where one is missing, unknown or of another type.
    """
    function = next(node for node in _parsed(skill.name, skill.code).body if isinstance(node, ast.FunctionDef))
    given = function.args
    kinds = {argument.arg: _type_name(argument) for argument in (*given.args[1:], *given.kwonlyargs)}
    optional = {argument.arg for argument in given.args[len(given.args) - len(given.defaults) :]}
    optional |= {a.arg for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is not None}
    if unknown := sorted(set(arguments) - set(kinds)):
        raise ProviderError(f"it has no argument {unknown[0]!r}; it takes {', '.join(kinds) or 'none'}")
    if missing := [name for name in kinds if name not in arguments and name not in optional]:
        raise ProviderError(f"it needs the argument {missing[0]!r}")
    return {name: _typed(name, kinds[name], value) for name, value in arguments.items()}


def _type_name(argument: ast.arg) -> str:
    """The plain type of a checked annotation: `list` of `list[str]`."""
    kind = argument.annotation
    base = kind.value if isinstance(kind, ast.Subscript) else kind
    return base.id if isinstance(base, ast.Name) else "str"


def _typed(name: str, kind: str, value: Any) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(value)
    except ValidationError:
        raise ProviderError(f"its argument {name!r} must be {kind}, and {str(value)[:80]!r} is none") from None


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(ARGUMENT_TYPES[kind], config=ConfigDict(coerce_numbers_to_str=True))


@dataclass(frozen=True)
class SkillResult:
    """What a skill returned (or its error), and how many tool calls it made inside."""

    result: ToolResult
    calls: int


class SkillRunner:
    """Runs skills in forked children of one warm sandbox process, several at once if asked; a call costs milliseconds.

    The sandbox starts at the first call, holds no environment variable, and ends with this object or this process.
    """

    def __init__(
        self,
        *,
        max_calls: int = 60,
        wall_seconds: float = 20.0,
        cpu_seconds: int = 5,
        memory_bytes: int = 512 * 2**20,
        output_bytes: int = 64 * 2**10,
    ) -> None:
        self.max_calls = max_calls
        self.wall_seconds = wall_seconds
        self._limits = {
            "max_calls": max_calls,
            "cpu_seconds": cpu_seconds,
            "memory_bytes": memory_bytes,
            "output_bytes": output_bytes,
        }
        self._lock = threading.Lock()
        self._server: _Server | None = None

    async def run(self, skill: SkillSpec, arguments: Mapping[str, Any], tools: tuple[Tool, ...]) -> SkillResult:
        """Run a skill with the task's own tools.

        Whatever the skill does wrong (raise, loop, grow, talk too much) is an error in the result; an exception of a
        tool passes through, and `ProviderError` means that the sandbox itself cannot run.
        """
        try:
            check_code(skill.name, skill.code)
            request = {
                "name": skill.name,
                "code": skill.code,
                "arguments": typed_arguments(skill, arguments),
                "tools": {tool.name: [parameter.name for parameter in tool.parameters] for tool in tools},
                **self._limits,
            }
            line = _line(request)
        except (ProviderError, TypeError, ValueError, RecursionError) as error:
            return _failed(skill.name, str(error), 0)
        conversation = _Conversation(skill.name, {tool.name: tool for tool in tools}, self.max_calls)
        reader, writer = await asyncio.open_unix_connection(
            sock=self._connect(), limit=2 * self._limits["output_bytes"] + 1024
        )
        try:
            async with asyncio.timeout(self.wall_seconds) as clock:
                return await conversation.hold(line, reader, writer)
        except TimeoutError:
            if not clock.expired():
                raise
            return _failed(skill.name, f"it ran longer than {self.wall_seconds:g} s", conversation.calls)
        finally:
            writer.close()

    def close(self) -> None:
        """End the sandbox process; a later call starts another."""
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None

    def _connect(self) -> socket.socket:
        """A socket whose other end was handed to the sandbox, which is started anew if it has ended."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            for _ in range(2):
                if self._server is None:
                    self._server = _Server()
                try:
                    self._server.hand_over(theirs)
                    return ours
                except OSError:
                    self._server.stop()
                    self._server = None
        ours.close()
        raise ProviderError("The skill sandbox ends as soon as it starts: check that this Python can fork processes.")


class _Server:
    """The sandbox process and the socket that controls it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(sandbox.__file__).resolve()), str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                self._control.close()
                raise ProviderError(f"The skill sandbox does not start ({error}): check {sys.executable}.") from error
        self.stop = weakref.finalize(self, _stop, process, self._control)

    def hand_over(self, connection: socket.socket) -> None:
        socket.send_fds(self._control, [b"+"], [connection.fileno()])


def _stop(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.kill()
    process.wait()


class _Conversation:
    """One call of a skill, seen from our side: answer its tool calls until it gives a result."""

    def __init__(self, name: str, tools: Mapping[str, Tool], max_calls: int) -> None:
        self.calls = 0
        self._name = name
        self._tools = tools
        self._max_calls = max_calls

    async def hold(self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> SkillResult:
        line = request
        while True:
            try:
                writer.write(line)
                await writer.drain()
                message = json.loads(await reader.readline())
            except (ValueError, ConnectionError, RecursionError):
                return _failed(self._name, "it ended without a result (out of time or memory)", self.calls)
            match message:
                case {"call": str(name), "arguments": dict(arguments)} if name in self._tools:
                    if self.calls == self._max_calls:
                        return _failed(self._name, f"it made more than {self._max_calls} tool calls", self.calls)
                    self.calls += 1
                    line = _line(await self._call(self._tools[name], arguments))
                case {"result": str(text)}:
                    return SkillResult(ToolResult(observation=text, lineage=_lineage(self._name)), self.calls)
                case {"error": str(reason)}:
                    return _failed(self._name, reason, self.calls)
                case _:
                    return _failed(self._name, "it sent a message that is none", self.calls)

    async def _call(self, tool: Tool, arguments: dict[str, Any]) -> dict[str, str]:
        """The tool's text, or why it was not called: arguments that it does not take are the skill's mistake."""
        kinds = {parameter.name: parameter.type for parameter in tool.parameters}
        try:
            typed = {name: _typed(name, kinds[name], value) for name, value in arguments.items()}
            inspect.signature(tool.call).bind(**typed)
        except KeyError as error:
            return {"refused": f"{tool.name} has no argument {error}"}
        except (ProviderError, TypeError) as error:
            return {"refused": f"{tool.name} was called wrongly: {error}"}
        return {"text": (await tool.call(**typed)).observation}


def _failed(name: str, reason: str, calls: int) -> SkillResult:
    text = f"Skill {name} failed: {reason}."
    return SkillResult(ToolResult(observation=text, error=text, lineage=_lineage(name)), calls)


def _lineage(name: str) -> Lineage:
    return Lineage(source=f"skill:{name}", trust="tool")


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
