"""A chat model as write policy: it decides from the evidence's metadata, as the paper's strongest alternative does."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from lm.errors import AnswerError
from lm.types import Message
from providers.distill.quoting import quoted, shortened
from providers.governance.evidence import Observation
from providers.governance.gate import Audit, Case, Decision, audit

if TYPE_CHECKING:
    import jinja2

    from lm.client import ChatModel

POLICY = "llm_judge"
MOST_OBSERVATIONS = 12
MOST_AGAINST = 4
TEXT_CHARACTERS = 300
MAX_TOKENS = 300


class WriteVerdict(BaseModel):
    """What the model is asked for."""

    decision: Decision
    confidence: float = Field(ge=0, le=1)
    reason: str


async def judge_write(model: ChatModel, case: Case) -> Audit:
    """One call of the model per candidate. An answer that cannot be read leaves the candidate to a person.

    The model is shown no check. Raises ModelError where the endpoint fails.
    """
    try:
        verdict = await model.structured(judge_prompt(case), WriteVerdict, purpose="verifier", max_tokens=MAX_TOKENS)
    except AnswerError as error:
        reason = f"the judge gave no readable verdict ({shortened(str(error), TEXT_CHARACTERS)})"
        return audit(case, POLICY, Decision.NEEDS_REVIEW, [reason], 0.0, checked=False)
    reasons = [f"the judge says {quoted(shortened(verdict.reason, TEXT_CHARACTERS))}"]
    return audit(case, POLICY, verdict.decision, reasons, verdict.confidence, checked=False)


def judge_prompt(case: Case) -> list[Message]:
    """The candidate with its own observations and what contradicts it, quoted."""
    own = case.candidate.observations
    against = [observation for group in case.evidence.contradicting for observation in group.observations]
    text = _template().render(
        claim=quoted({"claim": shortened(case.candidate.claim, TEXT_CHARACTERS), "scope": case.candidate.environment}),
        supporting=[_line(observation) for observation in own[:MOST_OBSERVATIONS]],
        left_out=max(0, len(own) - MOST_OBSERVATIONS),
        contradicting=[_line(observation) for observation in against[:MOST_AGAINST]],
    )
    return [Message(role="user", content=text)]


def _line(observation: Observation) -> str:
    fields: dict[str, Any] = {
        name: value for name, value in observation.model_dump(exclude={"id", "edit"}).items() if value not in ("", None)
    }
    return quoted(fields | {"text": shortened(observation.text, TEXT_CHARACTERS)})


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "prompts")
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    return environment.get_template("write_judge.jinja")
