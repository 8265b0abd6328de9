"""Exploration on a budget: episodes are spent where a further one most likely adds a label.

The full grid (MemAgent 4.3) runs every provider on every task. Most of its episodes decide nothing: the provider's
label on the task was settled before, or hardly anything solves the task. In rounds over a frozen bank, a small model of
"will this episode be correct" is fitted to all that ran so far, and the likeliest undecided episodes are run next. What
was not run is unlabelled, never wrong.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from providers.types import content_hash
from router.decisions import NONE, InMode
from synth.arms import Unit, episode_key
from synth.facts import Episode, EpisodeKey
from synth.success import Positive, settled

ROUNDS = 8
"""Per wave; after each the model is fitted again."""
LEAST_TO_FIT = 40
"""Outcomes, of both kinds, below which episodes are drawn by seed."""


@dataclass(frozen=True)
class Option:
    """One episode that could be run."""

    key: EpisodeKey
    providers: tuple[str, ...]
    """All arms that it would label."""
    similarity: float
    """Cosine of the question and the first provider's preview; 0 where there is none."""

    @property
    def name(self) -> str:
        """What the model knows the episode's memory by: a provider that retrieved something, or none."""
        return next((provider for provider in self.providers if provider != NONE), NONE)


@dataclass(frozen=True)
class Result:
    """What came of an option that ran: `correct` None where it failed or was not scored."""

    correct: bool | None
    shared: bool
    """Whether it stands for the no_op arm too, since working memory injected nothing."""


class Chooser:
    """Chooses what to run next from what is known; the same knowledge and seed give the same choice."""

    def __init__(self, by: Literal["undecided", "random"], positive: Positive, seed: int) -> None:
        self._by, self._positive, self._seed = by, positive, seed

    def choose(
        self, options: Sequence[Option], earlier: Sequence[Option], known: Mapping[EpisodeKey, Result], count: int
    ) -> list[Option]:
        """At most `count` of the open `options`; `earlier` are those of waves before, which only teach."""
        state = _State([*earlier, *options], known)
        standing = [option for option in options if state.offers(option)]
        drawn = {option.key: self._draw(option, len(known)) for option in standing}
        if self._by == "random":
            return sorted(standing, key=lambda option: drawn[option.key])[:count]
        runs = len({(o.key.in_mode, o.key.repeat) for o in options})
        undecided = [option for option in standing if not state.decided(option, runs, self._positive)]
        chances = dict(zip((o.key for o in undecided), state.chances(undecided), strict=True))
        order = sorted(standing, key=lambda o: (o.key not in chances, -round(chances.get(o.key, 0.0), 6), drawn[o.key]))
        return order[:count]

    def _draw(self, option: Option, round_: int) -> float:
        return random.Random(content_hash("budget", self._seed, round_, option.key.model_dump())).random()


class _State:
    """What is known of every task and of every provider on it."""

    def __init__(self, options: Sequence[Option], known: Mapping[EpisodeKey, Result]) -> None:
        self._known = known
        self._siblings: dict[tuple[str, str, int], set[InMode]] = defaultdict(set)
        for option in options:
            self._siblings[_content(option.key)].add(option.key.in_mode)
        self._names = sorted({option.name for option in options})
        self._ran: dict[str, list[tuple[Option, bool]]] = defaultdict(list)
        for option in options:
            result = known.get(option.key)
            if result is not None and result.correct is not None:
                self._ran[option.key.task_id].append((option, result.correct))

    def offers(self, option: Option) -> bool:
        """Whether an option is open: not run, and as no_op only once its query arm ran and injected working memory."""
        if option.key in self._known:
            return False
        if option.key.in_mode == "query":
            return True
        if "query" not in self._siblings[_content(option.key)]:
            return True
        first = self._known.get(option.key.model_copy(update={"in_mode": "query"}))
        return first is not None and not first.shared

    def decided(self, option: Option, runs: int, positive: Positive) -> bool:
        """Whether the provider's label on the task stands whatever its remaining runs give."""
        outcomes = [correct for other, correct in self._ran[option.key.task_id] if other.name == option.name]
        if positive == "confident":
            by_repeat: dict[int, list[bool]] = defaultdict(list)
            for other, correct in self._ran[option.key.task_id]:
                if other.name == option.name:
                    by_repeat[other.key.repeat].append(correct)
            return settled([sum(found) / len(found) for found in by_repeat.values()]) is not None
        wins, losses = sum(outcomes), len(outcomes) - sum(outcomes)
        if positive == "any":
            return wins > 0
        if positive == "all":
            return losses > 0
        return wins >= runs / 2 or losses > runs / 2

    def chances(self, options: Sequence[Option]) -> list[float]:
        """The estimated chance that each option ends correct."""
        seen = [(option, correct) for ran in self._ran.values() for option, correct in ran]
        wins = sum(correct for _, correct in seen)
        if len(seen) < LEAST_TO_FIT or wins in (0, len(seen)) or not options:
            return [0.0 for _ in options]
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=1.0, max_iter=1000)
        model.fit(np.array([self._features(o) for o, _ in seen]), np.array([correct for _, correct in seen]))
        chances = model.predict_proba(np.array([self._features(option) for option in options]))[:, 1]
        return [float(chance) for chance in chances]

    def _features(self, option: Option) -> list[float]:
        """What the other episodes of the task say of this one; its own outcome is left out."""
        others = [(o, correct) for o, correct in self._ran[option.key.task_id] if o.key != option.key]
        own = [correct for other, correct in others if other.name == option.name]
        rest = [correct for other, correct in others if other.name != option.name]
        return [
            *(float(option.name == name) for name in self._names),
            float(option.key.in_mode == "no_op"),
            option.similarity,
            sum(own) - (len(own) - sum(own)),
            float(bool(own)),
            (sum(rest) + 1) / (len(rest) + 2),
            math.log1p(sum(rest)),
            math.log1p(len(rest) - sum(rest)),
        ]


def _content(key: EpisodeKey) -> tuple[str, str, int]:
    """What a query and a no_op episode share."""
    return key.task_id, key.content_key, key.repeat


def options_of(stage: str, units: Sequence[Unit], similarity: Mapping[tuple[str, str], float]) -> list[Option]:
    """The episodes of `units`, In modes apart; `similarity` by task and provider."""
    options = []
    for unit in units:
        for mode in unit.in_modes:
            key = episode_key(stage, unit.prepared, unit.providers[0], mode, unit.repeat)
            option = Option(key, unit.providers, 0.0)
            options.append(replace(option, similarity=similarity.get((key.task_id, option.name), 0.0)))
    return options


def results_of(episodes: Mapping[EpisodeKey, Episode]) -> dict[EpisodeKey, Result]:
    """What is known from the episodes that ran."""
    return {
        key: Result(
            correct=episode.outcome.correct if episode.status == "done" else None,
            shared=episode.status == "done" and not episode.in_injections,
        )
        for key, episode in episodes.items()
    }


def rounds_of(options: int, share: float) -> list[int]:
    """A wave's quota of episodes cut into rounds of nearly equal size."""
    quota = max(1, round(options * share))
    edges = [quota * number // ROUNDS for number in range(ROUNDS + 1)]
    return [after - before for before, after in pairwise(edges) if after > before]
