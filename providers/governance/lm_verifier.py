"""A look at a run by a chat model: one score token per criterion, with its distribution where the endpoint gives it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, create_model

from lm.client import TOP_LOGPROBS
from lm.errors import AnswerError
from lm.structured import complaint, read, response_format
from lm.types import Completion, Message, Purpose, TokenLogprob
from providers.distill.quoting import run_lines
from providers.governance.descriptor import SCORES, View, one_hot, renormalised
from providers.governance.verifier import CriterionScore, Look, ordered
from providers.types import Trajectory

if TYPE_CHECKING:
    import jinja2

PURPOSE: Purpose = "verifier"
MAX_TOKENS = 800

ASKS: Mapping[str, str] = {
    "task_completion": "what is seen in the run shows that the task is done",
    "evidence_consistency": "observations of the run support the answer",
    "execution_validity": "the calls, commands or edits were valid and did what they were meant to",
    "generalizability": "what the run teaches holds beyond this one instance",
}
VIEWS: Mapping[View, str] = {
    "full": "Weigh the whole run: all observations, actions, the answer and the signs seen.",
    "evidence": (
        "Leave exploration that led nowhere aside and look for the least spans that support or contradict the answer. "
        "Where none supports it, evidence_consistency is low; say what is missing."
    ),
    "risk": (
        "Look for what may be wrong first: the wrong item or row, an outdated page, an invalid call, a failed check, "
        "an assumption without support, a loop, a path or name that nothing showed, a shortcut for this task alone. "
        "If a memory of this run could do harm later, give a failure_guard."
    ),
}

_SCORE = re.compile(r'"score"\s*:\s*"?([1-5])')
_NAME = re.compile("|".join(f'"({name})"' for name in ASKS))


class Asked(Protocol):
    """A chat model as this needs it; `lm.client.ChatModel` is one."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        purpose: Purpose,
        temperature: float | None = ...,
        max_tokens: int = ...,
        top_logprobs: int | None = ...,
        response_format: Mapping[str, Any] | None = ...,
    ) -> Completion: ...


class Scored(BaseModel):
    """One criterion as the model replies it."""

    model_config = ConfigDict(extra="ignore")

    score: Literal[1, 2, 3, 4, 5]
    rationale: str = ""
    evidence: str = ""


class LMLooker:
    """Asks a chat model; a reply that cannot be read is sent back once, then `AnswerError`."""

    def __init__(self, model: Asked, *, logprobs: bool = True) -> None:
        """`logprobs` False for endpoints that refuse to give log-probabilities."""
        self._model = model
        self._top = TOP_LOGPROBS if logprobs else None

    async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
        shape = reply_shape(tuple(order))
        messages = render(trajectory, view, order)
        turns, problem = list(messages), ""
        for _ in range(2):
            answer = await self._model.complete(
                turns,
                purpose=PURPOSE,
                temperature=0.0,
                max_tokens=MAX_TOKENS,
                top_logprobs=self._top,
                response_format=response_format(shape),
            )
            try:
                return _look(view, read(answer.text, shape), answer)
            except ValueError as error:
                problem = str(error).splitlines()[0]
                turns = [
                    *messages,
                    Message(role="assistant", content=answer.text or "(nothing)"),
                    Message(role="user", content=complaint(error, shape)),
                ]
        raise AnswerError(f"The verifier gave no readable verdict in two answers ({problem}): use another model.")


def render(trajectory: Trajectory, view: View, order: Sequence[str]) -> list[Message]:
    """The prompt of one view; the run is quoted, without how it was judged."""
    system = _template("verifier_system").render(criteria=[(name, ASKS[name]) for name in order])
    user = _template("verifier_run").render(run=run_lines(trajectory, None), view=VIEWS[view])
    return [Message(role="system", content=system), Message(role="user", content=user)]


@lru_cache
def reply_shape(order: tuple[str, ...]) -> type[BaseModel]:
    """The reply that is asked for, its criteria in that order."""
    fields: dict[str, Any] = dict.fromkeys(order, (Scored, ...))
    criteria = create_model("Criteria", **fields)
    labels = Literal["verified_success", "verified_fail", "uncertain"]
    whole: dict[str, Any] = {"criteria": (criteria, ...), "label": (labels, ...), "failure_guard": (str, "")}
    return create_model("VerifierReply", **whole)


def _look(view: View, reply: Any, answer: Completion) -> Look:
    given: dict[str, Scored] = dict(reply.criteria)
    found = score_distributions(answer.text, answer.logprobs or ())
    scores = {
        name: CriterionScore(
            distribution=_trusted(found.get(name), scored.score),
            rationale=scored.rationale,
            evidence=scored.evidence,
        )
        for name, scored in given.items()
    }
    guard = reply.failure_guard.strip()
    return Look(
        view=view,
        criteria=ordered(scores),
        stated=reply.label,
        failure_guard="" if guard.upper() == "NONE" else guard,
    )


def score_distributions(text: str, tokens: Sequence[TokenLogprob]) -> dict[str, tuple[float, ...]]:
    """By criterion, the probabilities at the place of its score token, renormalised over the allowed ones.

    Empty where the endpoint gave none, or where its tokens do not spell its text; a criterion is left out where none of
    the likeliest tokens at its place is a score (all were masked).
    """
    if "".join(token.token for token in tokens) != text:
        return {}
    ends = _ends(tokens)
    found: dict[str, tuple[float, ...]] = {}
    names = [(match.end(), match[0].strip('"')) for match in _NAME.finditer(text)]
    for number, (start, name) in enumerate(names):
        stop = names[number + 1][0] if number + 1 < len(names) else len(text)
        score = _SCORE.search(text, start, stop)
        if score is None or name in found:
            continue
        place = next(index for index, end in enumerate(ends) if end > score.start(1))
        distribution = renormalised(_mass(tokens[place]))
        if distribution is not None:
            found[name] = distribution
    return found


def _ends(tokens: Sequence[TokenLogprob]) -> list[int]:
    """Where in the text each token ends."""
    ends, at = [], 0
    for token in tokens:
        at += len(token.token)
        ends.append(at)
    return ends


def _mass(token: TokenLogprob) -> dict[str, float]:
    """Probability of each score at a token's place, over its spellings (` 4`, `4,`)."""
    mass = dict.fromkeys(SCORES, 0.0)
    for spelling, logprob in {token.token: token.logprob, **token.top}.items():
        digits = re.sub(r'[\s",:]', "", spelling)
        if digits in mass and not math.isnan(logprob):
            mass[digits] += math.exp(min(0.0, logprob))
    return mass


def _trusted(distribution: tuple[float, ...] | None, score: int) -> tuple[float, ...]:
    """The distribution, unless its likeliest score is not the one that was given: then that one alone."""
    if distribution is None or distribution[score - 1] < max(distribution) - 1e-9:
        return one_hot(score)
    return distribution


@lru_cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template(f"{name}.jinja")
