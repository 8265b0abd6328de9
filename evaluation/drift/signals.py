"""What a bank is told of a finished run, wrong at a given rate, and the verifiers that read it.

The outcome reaches a bank as a sign at the end of the run, as an exit code or a confirmation would: a verifier weighs
it beside what the run shows. Scoring stays true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from providers.governance.descriptor import CRITERIA, Label, View, expectation, label_of_scores, one_hot
from providers.governance.rule_verifier import RuleLooker
from providers.governance.verifier import CriterionScore, Look, Looker, Verdict, Verifier
from providers.types import Outcome, Task, Trajectory, content_hash

CONFIRMED, REFUSED = "the answer was confirmed", "the answer was refused"
LABEL_REWARD: dict[Label, float] = {"verified_success": 1.0, "uncertain": 0.5, "verified_fail": 0.0}
"""The reward that stands for a label where the descriptor has no other."""


@dataclass(frozen=True)
class Noise:
    """Tells the opposite of what happened in a `share` of the tasks, drawn per task: a larger share has the same ones
    and more."""

    share: float
    seed: int

    def flips(self, task_id: str) -> bool:
        return int(content_hash("flip", self.seed, task_id), 16) < self.share * 16**16

    def __call__(self, task: Task, trajectory: Trajectory, outcome: Outcome) -> tuple[Trajectory, Outcome]:
        return self.tell(trajectory, outcome)

    def tell(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Trajectory, Outcome]:
        """The run with its sign, and the outcome, as the bank hears of them."""
        if outcome.correct is None:
            return trajectory, outcome
        told = outcome.correct != self.flips(trajectory.task_id)
        signs = (*trajectory.status, CONFIRMED if told else REFUSED)
        return trajectory.model_copy(update={"status": signs}), outcome.model_copy(update={"correct": told})


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


class LabelOnly(Verifier):
    """Verdicts of a label and a confidence (MemGuard C.6): nothing tells two runs of one label apart but confidence."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return verdict.model_copy(update={"reward": LABEL_REWARD[verdict.label], "uncertainty": 0.0})


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
