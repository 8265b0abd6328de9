"""Later reuse of what a provider kept: the reward of an End decision, with provenance (MemAgent 4.3, signal 3).

A reuse is a task of a later wave that was shown an item which the provider had made of an earlier task. An item that
was merged from m origins counts 1/m for each. An origin with too few later tasks is censored: unscored, not zero.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from synth.facts import Probe

Definition = Literal["reuse", "uplift"]


@dataclass(frozen=True)
class ReuseEvent:
    """One later task that was shown an item of the origin."""

    task_id: str
    share: float
    """The origin's part of the item, 1/m where the item has m origins."""
    solved: bool
    """Whether the provider's arms solved that task."""
    peers: float
    """Share of all scored providers that solved it, this one included: how easy the task was."""


@dataclass(frozen=True)
class Reuse:
    """What became of one provider's memory of one task."""

    exposures: int
    """Later tasks on which the provider was scored: those that could have been shown something."""
    events: tuple[ReuseEvent, ...] = ()

    @property
    def used(self) -> float:
        """Events by credit share."""
        return math.fsum(event.share for event in self.events)

    @property
    def won(self) -> float:
        """Solved events by credit share."""
        return math.fsum(event.share for event in self.events if event.solved)

    def reward(self, definition: Definition, min_exposures: int) -> float | None:
        """r_end in [0, 1]; None below `min_exposures`, 0 where none of enough later tasks was shown anything.

        `reuse`: (s + 1) / (n + 2), with n events, s of them solved. `uplift`: 0.5 plus the mean of what the provider
        achieved beyond the mean of all providers on the same tasks, so that easy later tasks earn nothing.
        """
        if self.exposures < min_exposures:
            return None
        if not self.events:
            return 0.0
        if definition == "reuse":
            return (self.won + 1) / (self.used + 2)
        gain = math.fsum(event.share * (event.solved - event.peers) for event in self.events) / self.used
        return min(1.0, max(0.0, 0.5 + gain))


def later_reuse(
    offered: Iterable[tuple[str, str]],
    probes: Mapping[str, Probe],
    solved: Mapping[tuple[str, str], bool | None],
) -> dict[tuple[str, str], Reuse]:
    """The reuse of every (task, provider) that was offered the task's trajectory.

    `solved` says per (task, provider) whether the provider's arms solved the task; None where none was scored.
    """
    peers = _peers(solved)
    events: dict[tuple[str, str], list[ReuseEvent]] = defaultdict(list)
    scored_in_wave: Counter[tuple[str, int]] = Counter()
    for task_id in sorted(probes):
        probe = probes[task_id]
        for provider, served in probe.served.items():
            result = solved.get((task_id, provider))
            if result is None:
                continue
            scored_in_wave[provider, probe.wave] += 1
            for origin, share in served.origins:
                if origin in probes and probes[origin].wave < probe.wave:
                    events[origin, provider].append(ReuseEvent(task_id, share, result, peers[task_id]))
    last = max((probe.wave for probe in probes.values()), default=0)
    return {
        (origin, provider): Reuse(
            exposures=sum(scored_in_wave[provider, wave] for wave in range(probes[origin].wave + 1, last + 1)),
            events=tuple(events[origin, provider]),
        )
        for origin, provider in sorted(offered)
    }


def _peers(solved: Mapping[tuple[str, str], bool | None]) -> dict[str, float]:
    """Per task the share of its scored providers that solved it."""
    by_task: dict[str, list[bool]] = defaultdict(list)
    for (task_id, _), result in solved.items():
        if result is not None:
            by_task[task_id].append(result)
    return {task_id: sum(results) / len(results) for task_id, results in by_task.items()}
