"""What a bank is told of a finished run, wrong at a given rate, and the verifiers that read it.

The outcome reaches a bank as a sign at the end of the run, as an exit code or a confirmation would: a verifier weighs
it beside what the run shows. Either the verdict on it is wrong (MemGuard D.5), or the sign itself. Scoring stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from providers.governance.admission import DEFAULT, Thresholds
from providers.governance.descriptor import (
    BAND_HIGH,
    BAND_LOW,
    CRITERIA,
    MIX,
    Label,
    View,
    boundary,
    expectation,
    label_of_scores,
    one_hot,
)
from providers.governance.lifecycle import Governor
from providers.governance.rule_verifier import RuleLooker
from providers.governance.verifier import CriterionScore, Look, Looker, Verdict
from providers.types import Trajectory, content_hash

CONFIRMED, REFUSED = "the answer was confirmed", "the answer was refused"
LABEL_REWARD: dict[Label, float] = {"verified_success": 1.0, "uncertain": 0.5, "verified_fail": 0.0}
"""The reward that stands for a label where the descriptor has no other."""


LABELS: tuple[Label, ...] = ("verified_success", "verified_fail", "uncertain")

Wrong = Literal["verdicts", "signs"]
"""What is wrong: the verifier's verdicts, or the signs that it reads (and believes)."""


@dataclass(frozen=True)
class Noise:
    """What is wrong of a `share` of the tasks, drawn per task: a larger share has the same ones and more."""

    share: float
    seed: int
    wrong: Wrong = "verdicts"

    def flips(self, task_id: str) -> bool:
        return int(content_hash("flip", self.seed, task_id), 16) < self.share * 16**16

    def signed(self, trajectory: Trajectory, correct: bool | None) -> Trajectory:
        """The run with the sign that a verifier sees at its end; none where nothing scored it."""
        if correct is None:
            return trajectory
        confirmed = correct != (self.wrong == "signs" and self.flips(trajectory.task_id))
        signs = (*trajectory.status, CONFIRMED if confirmed else REFUSED)
        return trajectory.model_copy(update={"status": signs})

    def mistaken(
        self, trajectory: Trajectory, verdict: Verdict, thresholds: Thresholds = DEFAULT, mix: float = MIX
    ) -> Verdict:
        """The verdict, or in its place one with another label, drawn among the other two (MemGuard D.5)."""
        if self.wrong != "verdicts" or not self.flips(trajectory.task_id):
            return verdict
        others = [label for label in LABELS if label != verdict.label]
        drawn = others[int(content_hash("label", self.seed, trajectory.task_id), 16) % len(others)]
        return relabelled(verdict, drawn, thresholds, mix)


def relabelled(verdict: Verdict, label: Label, thresholds: Thresholds = DEFAULT, mix: float = MIX) -> Verdict:
    """The verdict with another label, its reward and confidence moved to the nearest values that go with it.

    MemGuard D.5 moves them "toward the nearest threshold interval" and does not say which these are. Ours: a success
    has both from their thresholds up, an uncertain verdict a reward within the band and a confidence up to its
    threshold, a failure a reward up to the band. The boundary part of the uncertainty follows the reward.
    """
    rewards: Mapping[Label, tuple[float, float]] = {
        "verified_success": (thresholds.reward, 1.0),
        "uncertain": (BAND_LOW, BAND_HIGH),
        "verified_fail": (0.0, BAND_LOW),
    }
    sure = (0.0, thresholds.confidence) if label == "uncertain" else (thresholds.confidence, 1.0)
    reward = _within(verdict.reward, rewards[label])
    doubt = verdict.uncertainty + mix * (boundary(reward) - boundary(verdict.reward))
    changed = {
        "label": label,
        "reward": reward,
        "confidence": _within(verdict.confidence, sure),
        "uncertainty": _within(doubt, (0.0, 1.0)),
    }
    return verdict.model_copy(update=changed)


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def label_alone(trajectory: Trajectory, verdict: Verdict) -> Verdict:
    """A label and a confidence (MemGuard C.6): nothing else tells two runs of one label apart."""
    return verdict.model_copy(update={"reward": LABEL_REWARD[verdict.label], "uncertainty": 0.0})


@dataclass
class TestedGovernor(Governor):
    """A governor whose verdicts are changed, one change after the other, before anything is done with them."""

    changes: tuple[Callable[[Trajectory, Verdict], Verdict], ...] = ()

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        for change in self.changes:
            verdict = change(trajectory, verdict)
        return verdict


def sign_of(trajectory: Trajectory) -> bool | None:
    """Whether the run's answer was confirmed or refused; None where no sign says so."""
    return True if CONFIRMED in trajectory.status else False if REFUSED in trajectory.status else None


class SignLooker:
    """Rules, and the sign: the whole run is complete or not by it, the risk view believes only a refusal, the evidence
    view looks at spans alone (MemGuard B.2)."""

    def __init__(self) -> None:
        self._rules = RuleLooker()

    async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
        look = await self._rules.look(trajectory, view, order)
        sign = sign_of(trajectory)
        if sign is None or view == "evidence" or (view == "risk" and sign):
            return look
        completion, *others = look.criteria
        told = completion.model_copy(update={"distribution": one_hot(5 if sign else 1), "rationale": "by the sign"})
        return _stated(look, (told, *others), trajectory)


class OutcomeLooker:
    """The sign alone: a success is worth all and a failure nothing. What it verifies is filtered by nothing else."""

    async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
        score = {True: 5, None: 3, False: 1}[sign_of(trajectory)]
        one = CriterionScore(distribution=one_hot(score), evidence=trajectory.question)
        look = Look(view=view, criteria=(one,) * len(CRITERIA), stated="")
        return _stated(look, look.criteria, trajectory)


class Rescaled:
    """Another looker's scores on a scale of `tokens` tokens (MemGuard C.5). Whole scores of 1 to 5 gain nothing by a
    finer scale: they are only rounded elsewhere."""

    def __init__(self, looker: Looker, tokens: int) -> None:
        self._looker, self._tokens = looker, tokens

    async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
        look = await self._looker.look(trajectory, view, order)
        top = self._tokens - 1
        criteria = tuple(
            one.model_copy(
                update={
                    "distribution": tuple(
                        float(place == round(expectation(one.distribution) * top)) for place in range(self._tokens)
                    )
                }
            )
            for one in look.criteria
        )
        return _stated(look, criteria, trajectory)


def views_agree(labels: Sequence[str]) -> tuple[bool, bool, bool]:
    """Of the labels of the full, evidence and risk views: full and evidence, full and risk, all (table 16)."""
    full, evidence, risk = labels
    return full == evidence, full == risk, full == evidence == risk


def means_of(look: Look) -> np.ndarray:
    """A look's criterion means, shape (1, criteria)."""
    return np.asarray([look.means])


def _stated(look: Look, criteria: tuple[CriterionScore, ...], trajectory: Trajectory) -> Look:
    """The look with other scores, and the label that the rules give these."""
    blocked = not (trajectory.answer or "").strip()
    label = label_of_scores([one.score for one in criteria], blocked)
    guard = "" if label == "verified_success" else look.failure_guard
    return look.model_copy(update={"criteria": criteria, "stated": label, "failure_guard": guard})
