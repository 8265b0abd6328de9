"""The textworld suite: TextWorldExpress, eight text games that say themselves whether they are won.

Nothing of the exam is ours but how large the games are: tasks, scenes, admissible actions, score and success are the
package's, and so are its three folds, which differ in their things (foods, household objects) and their seeds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from providers.errors import ConfigError, SuiteError
from providers.tools import Tool, ToolResult
from providers.types import Lineage, Outcome, Parameter, Split, Task, content_hash
from synth.tasks.textworld_games import Game, JavaMachine, Machine, Scene

GAMES: Mapping[str, str] = {
    "cookingworld": "numLocations=2,numIngredients=2,numDistractorItems=2,includeDoors=0,limitInventorySize=0",
    "coin": "numLocations=6,numDistractorItems=0,includeDoors=1,limitInventorySize=0",
    "twc": "numLocations=1,numItemsToPutAway=2,includeDoors=0,limitInventorySize=0",
    "mapreader": "numLocations=8,maxDistanceApart=3,maxDistractorItemsPerLocation=0,includeDoors=0",
    "arithmetic": "",
    "sorting": "",
    "simonsays": "gameLength=5,numDistractors=3,memorization=0",
    "peckingorder": "",
}
"""Every game with its settings: small ones, so that 30 actions are enough. Where it has none it takes none."""

FOLDS: Mapping[Split, str] = {Split.WARMUP: "train", Split.EXPLORE: "train", Split.DEV: "dev", Split.TEST: "test"}
SEEDS: Mapping[Split, range] = {
    Split.WARMUP: range(0, 400),
    Split.EXPLORE: range(400, 1000),
    Split.DEV: range(10_000, 11_000),
    Split.TEST: range(20_000, 21_000),
}
"""The package's seeds of each fold; those of its train fold are shared out."""


class TextWorld:
    """One family per game. `games` names those to play, with other settings where it is a mapping."""

    name = "textworld"

    def __init__(
        self,
        seed: int = 0,
        games: Sequence[str] | Mapping[str, str] = tuple(GAMES),
        machine: Callable[[], Machine] = JavaMachine,
    ) -> None:
        unknown = [name for name in games if name not in GAMES]
        if unknown or not games:
            raise ConfigError(f"suite.options.games names {unknown or 'none'}: there are {', '.join(GAMES)}.")
        given = games if isinstance(games, Mapping) else {}
        self._games = {name: given.get(name, GAMES[name]) for name in games}
        self._seed = seed
        self._machine = machine()
        self._running = 0
        self._descriptions: dict[tuple[str, int], str] = {}

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._machine.start)
        self._running += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running -= 1
        if not self._running:
            await asyncio.to_thread(self._machine.stop)

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        """Tasks of a split: the games in turn, each with its next seed in an order drawn by the suite's seed.

        The description of each is the game's own, so the games run while they are made.
        """
        most = len(SEEDS[split]) * len(self._games)
        if limit is not None and limit > most:
            raise SuiteError(
                f"The textworld suite has {most} {split} tasks, not {limit}: lower suite.{split} in the config."
            )
        if limit == 0:
            return []
        seeds = {
            name: random.Random(content_hash("textworld", self._seed, split.value, name)).sample(
                SEEDS[split], len(SEEDS[split])
            )
            for name in self._games
        }
        names = list(self._games)
        wanted = [(names[place % len(names)], place // len(names)) for place in range(limit or most)]
        if not self._running:
            self._machine.start()
        try:
            return [self._task(split, name, seeds[name][turn]) for name, turn in wanted]
        finally:
            if not self._running:
                self._machine.stop()

    def score(self, task: Task, answer: str | None) -> Outcome:
        """Unscored: an answer says nothing of how a game went."""
        return Outcome(correct=None, reason="only the game that was played knows")

    def score_played(self, task: Task, tools: Sequence[Tool]) -> Outcome:
        """What the game itself says of the run that used `tools`."""
        scene = next(tool.scene for tool in tools if isinstance(tool, ActTool))
        if scene is None:
            return Outcome(correct=False, score=0.0, reason="nothing was done", source="gold")
        reason = "won" if scene.won else "lost" if scene.lost else "not finished"
        return Outcome(correct=scene.won, score=scene.score, reason=reason, source="gold")

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """`act`, with a game of its own for every call of this method. Raises SuiteError outside `async with`."""
        if not self._running:
            raise SuiteError("The games are not running: use the suite's tools inside `async with`.")
        name, seed = str(task.meta["game"]), int(task.meta["seed"])
        return (ActTool(lambda: self._game(task.split, name, seed)),)

    def _task(self, split: Split, name: str, seed: int) -> Task:
        if (name, seed) not in self._descriptions:
            self._descriptions[name, seed] = self._game(split, name, seed).description
        return Task(
            id=content_hash(self.name, name, self._games[name], seed),
            question=self._descriptions[name, seed],
            suite=self.name,
            family=name,
            split=split,
            meta={"game": name, "seed": seed},
        )

    def _game(self, split: Split, name: str, seed: int) -> Game:
        return self._machine.game(name, self._games[name], FOLDS[split], seed)


class ActTool:
    """Does one action of a game, which it makes at the first call; what it says is the game's own text."""

    name = "act"
    doc = "Do one action, in the words in which it is listed; `look around` shows where you are and what you can do."
    parameters = (Parameter(name="action", doc="one of the listed actions"),)
    stateful = True

    def __init__(self, make: Callable[[], Game]) -> None:
        self._make = make
        self._game: Game | None = None
        self._turn = asyncio.Lock()
        self.scene: Scene | None = None
        """What the game showed last; None before the first call."""

    async def call(self, **arguments: Any) -> ToolResult:
        given = " ".join(str(arguments.get("action", "")).split())
        async with self._turn:
            before = self.scene
            if self._game is None or before is None:
                self._game = await asyncio.to_thread(self._make)
                before = self.scene = self._game.opening
            if before.over:
                return _told(f"The game is over.\n\n{_ending(before)}", error="the game is over")
            action = _listed(given, before.actions)
            if action in before.actions:
                self.scene = await asyncio.to_thread(self._game.step, action)
                return _told(_shown(self.scene, before.score))
            if action == "look around":
                return _told(_shown(before, before.score))  # a game without scenery has no such action
            said = f'"{given}" cannot be done now.'
            return _told(f"{said}\n\n{_shown(before, before.score)}", error=said)


def _listed(given: str, actions: Sequence[str]) -> str:
    """The listed action that is meant: models write it with a capital, a full stop or its bullet."""
    plain = given.casefold().strip(" -.!\"'`")
    return next((one for one in actions if one.casefold() == plain), plain if plain == "look around" else given)


def _told(text: str, error: str | None = None) -> ToolResult:
    lineage = Lineage(source="game", environment="textworld", trust="tool")
    return ToolResult(observation=text, error=error, lineage=lineage)


def _shown(scene: Scene, score: float) -> str:
    parts = [scene.text]
    if scene.score != score:
        parts.append(f"Your score is now {scene.score:.2f} of 1.")
    parts.append(_ending(scene) if scene.over else "You can now:\n" + "\n".join(f"- {one}" for one in scene.actions))
    return "\n\n".join(parts)


def _ending(scene: Scene) -> str:
    return "You have won. Answer with done." if scene.won else "You have lost."
