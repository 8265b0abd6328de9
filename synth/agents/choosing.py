"""How the case-based agent acts where the world lists what can be done: it ranks that by what it was told.

An action counts for more the more of its words stand together in the task or in something read lately, and the more it
is like the actions that a memory's cases tell of, those that come next in them first; what was done before counts for
less, and less still where it then gave nothing new. The agent knows no game: that cutting comes before frying it can
only have from a text or from a case.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from providers.lexical import tokenise
from providers.tools import Tool, ToolResult
from providers.types import Step, Task, Trajectory, content_hash
from synth.agents.base import AgentSession
from synth.agents.reading import failed, refuses, word_keys

PARAMETER = "action"
"""The one parameter of a tool that does what its results list."""
WINDOW = 12
"""Texts that the agent still sees."""
FADING = 0.9
"""What each later text takes from an earlier one's weight."""
MEMORY_WEIGHT = 0.8
"""What the memory's word counts beside the task's and the world's."""
AHEAD = 0.7
"""What each step further on in a case takes from its weight."""
SAME_STEP = 0.75
"""Likeness from which an action counts as a case's step, so that the case goes on behind it."""
DONE = 0.3
"""What an action loses for having been done."""
STALE = 0.4
"""What it loses besides for every time that it gave a text which it had given before."""

_LIST = re.compile(r"^You can now:\n((?:- .*(?:\n|\Z))+)", re.MULTILINE)
_ANSWER = re.compile(r"\bAnswer with (\w+)")
_TOLD = re.compile(r'\bdo "([^"]+)"', re.IGNORECASE)


def acting_tool(tools: Iterable[Tool]) -> Tool | None:
    """The tool that does listed actions; None where there is none."""
    return next((tool for tool in tools if [one.name for one in tool.parameters] == [PARAMETER]), None)


@dataclass
class Case:
    """Actions in a row that a memory tells of; `done` of them lie behind the agent."""

    actions: tuple[str, ...]
    weight: float
    done: int = 0

    def advice(self, action: str) -> float:
        """How like the action is to a step that lies ahead."""
        ahead = self.actions[self.done :]
        return self.weight * max((likeness(action, one) * AHEAD**place for place, one in enumerate(ahead)), default=0.0)

    def follow(self, action: str) -> None:
        """Go on behind the next step that is like the action."""
        for place in range(self.done, len(self.actions)):
            if likeness(action, self.actions[place]) >= SAME_STEP:
                self.done = place + 1
                return


def read_cases(memory: str, question: str) -> list[Case]:
    """The actions that each block of a memory's text tells of; of what failed, or is advised against, with a minus.

    Earlier blocks count more, and so do those that share more words with the task.
    """
    asked = word_keys(question)
    cases: list[Case] = []
    for rank, block in enumerate(part for part in re.split(r"\n\s*\n", memory) if part.strip()):
        words = word_keys(_TOLD.sub(" ", block))
        kin = len(words & asked) / len(words | asked) if words | asked else 0.0
        weight = 0.9**rank * (0.6 + 0.4 * kin)
        for line in block.splitlines():
            actions = tuple(_TOLD.findall(line))
            if actions:
                cases.append(Case(actions, -weight if refuses(line) else -0.4 * weight if failed(block) else weight))
    return _joined(cases)


def _joined(cases: Sequence[Case]) -> list[Case]:
    """Lines of one block that hold one action each are the steps of one case."""
    joined: list[Case] = []
    for case in cases:
        if joined and joined[-1].weight == case.weight:
            joined[-1] = Case(joined[-1].actions + case.actions, case.weight)
        else:
            joined.append(case)
    return joined


def likeness(action: str, other: str) -> float:
    """Half for the same first word, half for the share of the other words that both have."""
    (verb, *words), (other_verb, *other_words) = action.split(), other.split()
    rest, other_rest = set(words), set(other_words)
    shared = len(rest & other_rest) / len(rest | other_rest) if rest | other_rest else 1.0
    return 0.5 * (verb == other_verb) + 0.5 * shared


class Choosing:
    """One run of one task."""

    def __init__(
        self,
        task: Task,
        tool: Tool,
        session: AgentSession,
        *,
        agent: str,
        seed: int,
        max_steps: int,
        noise: float,
    ) -> None:
        self._task, self._tool, self._session = task, tool, session
        self._agent, self._seed, self._max_steps = agent, seed, max_steps
        self._noise = noise
        self._random = random.Random(content_hash(task.id, seed))
        self._cases = read_cases(session.memory, task.question)
        self._texts: deque[frozenset[str]] = deque(maxlen=WINDOW)
        self._listed: list[str] = []
        self._given: dict[str, set[str]] = {}
        """What every action that was done has given."""
        self._stale: Counter[str] = Counter()
        self._steps: list[Step] = []

    async def run(self) -> Trajectory:
        answer = None
        action: str | None = "look around"
        while len(self._steps) < self._max_steps:
            await self._session.step(tuple(self._steps))
            if action is None:
                answer = self._end()
                break
            await self._act(action)
            action = self._choose()
        return Trajectory.make(
            task_id=self._task.id,
            question=self._task.question,
            agent=self._agent,
            seed=self._seed,
            settings={"max_steps": self._max_steps, "noise": self._noise},
            steps=tuple(self._steps),
            answer=answer or None,
            status=self._status(),
            injections=self._session.injections,
            usage={"steps": float(len(self._steps))},
        )

    async def _act(self, action: str) -> None:
        started, clock = time.time(), time.perf_counter()
        result = await self._tool.call(**{PARAMETER: action})
        self._steps.append(
            Step(
                index=len(self._steps),
                thought=f'Do "{action}".',
                tool=self._tool.name,
                arguments={PARAMETER: action},
                observation=result.observation,
                error=result.error,
                started=started,
                seconds=time.perf_counter() - clock,
                lineage=result.lineage,
            )
        )
        self._see(action, result)

    def _see(self, action: str, result: ToolResult) -> None:
        listed = _LIST.search(result.observation)
        self._listed = [line.removeprefix("- ") for line in listed.group(1).splitlines()] if listed else []
        text = _LIST.sub("", result.observation)
        self._texts.append(frozenset(tokenise(text)))
        given = self._given.setdefault(action, set())
        self._stale[action] += text in given
        given.add(text)
        for case in self._cases:
            case.follow(action)

    def _choose(self) -> str | None:
        """The listed action that counts for most; None where none is listed: the world has come to its end."""
        return max(self._listed, key=self._rate, default=None)

    def _rate(self, action: str) -> float:
        advised = [case.advice(action) for case in self._cases]
        advice = max([0.0, *advised]) + min([0.0, *advised])
        spent = DONE * (action in self._given) + STALE * self._stale[action]
        return self._told(action) + MEMORY_WEIGHT * advice - spent + self._random.gauss(0.0, self._noise)

    def _told(self, action: str) -> float:
        """The square of the share of the action's words that stand in one text, later texts before earlier ones."""
        words = set(tokenise(action))
        texts = [(0, frozenset(tokenise(self._task.question))), *enumerate(reversed(self._texts))]
        if not words:
            return 0.0
        return max(float((len(words & text) / len(words)) ** 2 * FADING**age) for age, text in texts)

    def _end(self) -> str:
        asked = _ANSWER.search(self._steps[-1].observation)
        text = asked.group(1) if asked else ""
        thought = f"Answer with {text}." if asked else "It ended, and no answer is asked for."
        self._steps.append(Step(index=len(self._steps), thought=thought, tool="answer", arguments={"text": text}))
        return text

    def _status(self) -> tuple[str, ...]:
        signs = [f"step {step.index}: {step.error}" for step in self._steps if step.error]
        if len(self._steps) == self._max_steps and self._steps[-1].tool != "answer":
            signs.append("step limit reached")
        return tuple(signs)
