"""Arms of prepared tasks: which of them are one episode, under which key it stands, and what a stage came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from router.decisions import Arm, InMode
from synth.episode import Prepared
from synth.facts import Episode, EpisodeKey


@dataclass(frozen=True)
class Unit:
    """Arms of one task that inject the same content with the same repeat: their In modes run one after the other."""

    prepared: Prepared
    providers: tuple[str, ...]
    """All arms that share it; the first names it."""
    in_modes: tuple[InMode, ...]
    repeat: int


@dataclass
class Tally:
    """What a stage's arms came to, from its facts."""

    arms: int = 0
    episodes: int = 0
    shared_begin: int = 0
    """Arms that are another provider's episode."""
    shared_in: int = 0
    """Arms that are the query arm's episode, because working memory injected nothing."""
    skipped: int = 0
    """Arms that a budget left out."""
    failed: int = 0
    timeouts: int = 0

    @property
    def saved(self) -> float:
        """Share of the arms that needed no episode of their own."""
        return (self.shared_begin + self.shared_in) / self.arms if self.arms else 0.0

    def line(self) -> str:
        skipped = f"; {self.skipped} left out by the budget" if self.skipped else ""
        return (
            f"{self.arms} arms, {self.episodes} episodes; {self.saved:.0%} shared (Begin {self.shared_begin}, "
            f"In {self.shared_in}){skipped}; {self.failed} failed, {self.timeouts} timed out"
        )


def arms_of(providers: Iterable[str], modes: Sequence[InMode], repeats: int) -> list[Arm]:
    """Every provider in every In mode and repeat, in that order."""
    return [
        Arm(provider=provider, in_mode=mode, repeat=repeat)
        for provider in providers
        for mode in modes
        for repeat in range(repeats)
    ]


def units_of(prepared: Iterable[Prepared], arms: Sequence[str], modes: tuple[InMode, ...], repeats: int) -> list[Unit]:
    """Group every task's arms by what they inject, in task order."""
    units = []
    for one in prepared:
        groups: dict[str, list[str]] = {}
        for provider in arms:
            groups.setdefault(one.content_key(provider), []).append(provider)
        units += [Unit(one, tuple(group), modes, repeat) for repeat in range(repeats) for group in groups.values()]
    return units


def tally(stage: str, units: Iterable[Unit], episodes: Mapping[EpisodeKey, Episode]) -> Tally:
    """Count the arms of `units` and the episodes that stand for them."""
    total = Tally()
    for unit in units:
        for mode in unit.in_modes:
            key = episode_key(stage, unit.prepared, unit.providers[0], mode, unit.repeat)
            total.arms += len(unit.providers)
            if _standing(episodes, key) is None:
                total.skipped += len(unit.providers)
                continue
            total.shared_begin += len(unit.providers) - 1
            episode = episodes.get(key)
            if episode is None:
                total.shared_in += 1
                continue
            total.episodes += 1
            total.failed += episode.status == "failed"
            total.timeouts += episode.status == "timeout"
    return total


def episode_key(stage: str, prepared: Prepared, provider: str, mode: InMode, repeat: int) -> EpisodeKey:
    return EpisodeKey(
        stage=stage,
        task_id=prepared.task.id,
        content_key=prepared.content_key(provider),
        in_mode=mode,
        repeat=repeat,
    )


def episode_of(
    episodes: Mapping[EpisodeKey, Episode], stage: str, task_id: str, content_key: str, mode: InMode, repeat: int
) -> Episode | None:
    """The episode of an arm: its own, or the query arm's where that injected no working memory."""
    return _standing(
        episodes,
        EpisodeKey(stage=stage, task_id=task_id, content_key=content_key, in_mode=mode, repeat=repeat),
    )


def _standing(episodes: Mapping[EpisodeKey, Episode], key: EpisodeKey) -> Episode | None:
    own = episodes.get(key)
    if own is not None or key.in_mode == "query":
        return own
    query = episodes.get(key.model_copy(update={"in_mode": "query"}))
    return query if query is not None and query.status == "done" and not query.in_injections else None
