"""The language-model router behind the service: vLLM beside it, an endpoint that runs already, or this process.

An engine is ready only when it was shown to be the right one: the adapter's record fits the prompts that are made now,
answers obey their grammar, and decisions equal the exported model's (`serve.canary`). One that goes away is waited for,
started again where it is ours, and looked at anew before it decides again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from providers.base import ProviderCard
from providers.errors import EngineError, ModelError
from router.adapter import TRAIN_AGAIN, check_record, read_record
from router.codec import JsonCodec, Prompt
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy
from router.guide import guide_hash
from router.marks import MarkTokenizer
from router.policies.learned import ANSWER_TOKENS, ANSWER_TOKENS_END, Learned
from router.policies.marking import MarksPolicy
from router.sight import Sight
from serve.canary import MOST_TOKENS, Agreement, Canary, case_schema, compare_answer, compare_marks, load_canary
from serve.completions import EngineClient
from serve.failures import EngineFailure
from serve.schemas import begin_schema, end_schema, in_schema
from serve.vllm import VllmProcess

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from router.policies.heads import Heads
    from synth.runs import Run

log = logging.getLogger(__name__)

NAME = "trained"
"""Of the policy: the same decisions as those of the trained router in this process."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before an engine that failed is tried again; doubled each time."""
LOOK_EVERY = 1.0
"""Seconds between looks at a ready engine, and at one that starts."""

Decision = TypeVar("Decision")

MOST_SLOW = 5
"""Looks in a row that an engine may be too slow for."""

_NEVER_SAID = "zq7-canary"
"""What a model says only where a grammar makes it."""


@dataclass(frozen=True)
class EngineState:
    """Whether decisions can be asked for, and why not."""

    status: Literal["starting", "ready", "down", "refused", "stopped"]
    """`down` is tried again by itself; `refused` needs a person."""
    reason: str = ""
    agreement: Agreement | None = None
    restarts: int = 0


class ServedMarks(MarksPolicy):
    """Marks read from an engine's log-probabilities."""

    def __init__(self, engine: Engine, sight: Sight, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(NAME, engine.record.offsets, sight)
        self._engine = engine
        self._marks = MarkTokenizer(tokenizer)

    def score_prompts(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        self._engine.require_ready()
        encoded = [self._marks.encode(prompt.segments) for prompt in prompts]
        return self._engine.client.log_odds_now(encoded, self._marks.yes, self._marks.no)

    async def read(self, prompt: Prompt) -> list[float]:
        self._engine.require_ready()
        [scores] = await self.ask([prompt])
        return scores

    async def ask(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        """Log-odds without offsets, whether or not the engine was found to be the right one."""
        encoded = [self._marks.encode(prompt.segments) for prompt in prompts]
        return await self._engine.client.log_odds(encoded, self._marks.yes, self._marks.no)


class ServedJson:
    """JSON answers of an engine, under a grammar. An illegal one raises `EngineFailure` (invalid)."""

    name = NAME

    def __init__(self, engine: Engine, sight: Sight) -> None:
        self._engine = engine
        self._sight = sight
        self._codec = JsonCodec()

    async def begin(self, context: BeginContext) -> BeginDecision:
        schema = begin_schema([preview.provider for preview in context.previews])
        [seen] = await asyncio.to_thread(self._sight.begin, [context])
        answer = await self._ask(self._codec.begin(seen), schema, ANSWER_TOKENS)
        return _legal(lambda: self._codec.parse_begin(answer, context))

    async def step(self, context: InContext) -> InDecision:
        if not context.summary:
            return InDecision(action="no_op")
        answer = await self._ask(self._codec.in_(context), in_schema(), ANSWER_TOKENS)
        return _legal(lambda: self._codec.parse_in(answer))

    async def end(self, context: EndContext) -> EndDecision:
        accepting = [card.name for card in context.cards if card.accepts(context.outcome)]
        if not accepting:
            return EndDecision()
        prompt = self._codec.end(self._sight.end(context))
        answer = await self._ask(prompt, end_schema(accepting), ANSWER_TOKENS_END)
        return _legal(lambda: self._codec.parse_end(answer, context))

    async def _ask(self, prompt: Prompt, schema: dict[str, object], tokens: int) -> str:
        self._engine.require_ready()
        return (await self._engine.client.answer(prompt.text, schema, max_tokens=tokens)).text


class Engine:
    """Holds the engine that a run's `serve.engine` names. Call `start`, use `policy`, call `close`."""

    def __init__(self, run: Run, cards: tuple[ProviderCard, ...], heads: Callable[[], Heads] | None = None) -> None:
        """`heads` loads those whose forecasts the adapter may have been shown.

        Raises `EngineError` where no training has finished, or it was on other prompts or providers."""
        self._run = run
        self._heads = heads
        self._config = run.config.serve.engine
        self.cards = cards
        self.record = read_record(run.adapter)
        check_record(self.record, run.config.train.base, run.config.train.codec, cards)
        if self.record.guide_hash not in ("", guide_hash(cards)):
            raise EngineError(f"What the guide says about the providers has changed; {TRAIN_AGAIN}.")
        self.state = EngineState("starting")
        self.client = EngineClient(
            self._config.base_url,
            self._config.model,
            key=os.environ.get(self._config.key_env, ""),
            timeout=self._config.timeout,
        )
        self.process: VllmProcess | None = None
        self._policy: Policy | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def merged(self) -> Path:
        """The exported model, with its tokenizer."""
        return self._run.merged

    @property
    def policy(self) -> Policy:
        """Decides as the exported model does; raises `EngineFailure` where the engine gives no decision."""
        if self._policy is None:
            raise EngineFailure("The engine was not started.", kind="down")
        return self._policy

    @property
    def ready(self) -> bool:
        return self.state.status == "ready"

    def missing(self) -> str:
        """That decisions cannot be asked for, in a sentence for anybody; empty where they can. The log says why."""
        return "" if self.ready else f"The engine is {self.state.status}."

    def require_ready(self) -> None:
        """Raise `EngineFailure` at once where asking would only end in one."""
        if self.state.status == "refused":
            raise EngineFailure(self.state.reason, kind="refused")
        if not self.ready:
            reason = self.state.reason or "no word yet"
            raise EngineFailure(f"The engine is {self.state.status} ({reason}).", kind="down")

    async def start(self) -> None:
        """Make `policy`, and bring the engine up: `local` before this returns, the others in the background.

        Raises `EngineError` where `local` cannot be loaded, or the engine's environment is missing.
        """
        if self._config.kind == "local":
            train = self._run.config.train
            self._policy = await asyncio.to_thread(
                lambda: Learned.load(
                    train.base,
                    self._run.adapter,
                    train.codec,
                    self.cards,
                    seed=self._run.config.seed,
                    dtype=train.dtype,
                    heads=self._heads,
                )
            )
            self._set(EngineState("ready"))
            return
        if self._config.kind == "vllm":
            self.process = VllmProcess(self._run, self._config)
            self.client.key = self.process.key
        self._policy = await asyncio.to_thread(self._make_policy)
        self._task = asyncio.create_task(self._keep())

    async def wait(self) -> EngineState:
        """The state once it is ready or refused."""
        while self.state.status not in ("ready", "refused", "stopped"):
            self._changed.clear()
            await self._changed.wait()
        return self.state

    async def close(self) -> None:
        """End what was started."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._set(EngineState("stopped"))
        if self.process is not None:
            await self.process.stop()
        await self.client.close()

    def _make_policy(self) -> Policy:
        sight = Sight.of_record(self.record, self._heads)
        if self.record.codec == "json":
            return ServedJson(self, sight)
        from transformers import AutoTokenizer

        return ServedMarks(self, sight, AutoTokenizer.from_pretrained(str(self.merged)))

    async def _keep(self) -> None:
        """Bring the engine up and keep it up, waiting longer after every failure in a row."""
        wait, restarts = FIRST_WAIT, 0
        while True:
            try:
                await self._bring_up()
                agreement = await self._look_over()
                self._set(EngineState("ready", agreement=agreement, restarts=restarts))
                wait = FIRST_WAIT
                await self._watch()
            except EngineFailure as failure:
                log.warning("engine: %s", failure)
                if failure.kind == "refused":
                    self._set(EngineState("refused", str(failure), restarts=restarts))
                    return
                self._set(EngineState("down", str(failure), restarts=restarts))
            except EngineError as error:
                log.error("engine: %s", error)
                self._set(EngineState("refused", str(error), restarts=restarts))
                return
            await asyncio.sleep(wait)
            wait, restarts = min(2 * wait, LONGEST_WAIT), restarts + 1

    async def _bring_up(self) -> None:
        """Start vLLM where it is ours, and wait until the engine lists its models."""
        if self.process is not None:
            await asyncio.to_thread(self.process.start)
            self.client.base_url = self.process.base_url
        until = time.monotonic() + self._config.start_seconds
        while True:
            try:
                served = await self.client.models()
            except EngineFailure as failure:
                if self.process is None or failure.kind == "refused":
                    raise
                self.process.require_alive()
                if time.monotonic() > until:
                    await self.process.stop()
                    raise EngineFailure(
                        f"vLLM did not start within {self._config.start_seconds:g} s; see {self.process.log}.",
                        kind="down",
                    ) from failure
                await asyncio.sleep(LOOK_EVERY)
                continue
            if self._config.model not in served:
                raise EngineFailure(
                    f"The engine at {self.client.base_url} serves {', '.join(served) or 'nothing'}, not "
                    f"{self._config.model}: set serve.engine.model.",
                    kind="refused",
                )
            return

    async def _look_over(self) -> Agreement:
        """Show that the engine is the right one. Its first answers are slow, so it has its starting time for them."""
        canary = await asyncio.to_thread(load_canary, self._run, self.record)
        self.client.timeout = max(self._config.timeout, self._config.start_seconds)
        try:
            if isinstance(self._policy, ServedMarks):
                prompts = [Prompt(segments=case.segments, candidates=case.candidates) for case in canary.cases]
                return compare_marks(canary, await self._policy.ask(prompts), self.record)
            await self._require_grammar()
            return await self._compare_answers(canary)
        finally:
            self.client.timeout = self._config.timeout

    async def _require_grammar(self) -> None:
        """Some servers take a schema with status 200 and ignore it."""
        schema = {
            "type": "object",
            "properties": {"word": {"enum": [_NEVER_SAID]}},
            "required": ["word"],
            "additionalProperties": False,
        }
        try:
            said = (await self.client.answer("Say hello.", schema, max_tokens=MOST_TOKENS)).text
        except EngineFailure as failure:
            if failure.kind not in ("cut", "invalid"):
                raise
            said = ""
        if _NEVER_SAID not in said:
            raise EngineFailure(
                f"The engine at {self.client.base_url} takes a JSON schema (response_format) and does not keep to it: "
                "serve the router with the vLLM that scripts/setup_engine installs.",
                kind="refused",
            )

    async def _compare_answers(self, canary: Canary) -> Agreement:
        providers = [card.name for card in self.cards]
        for case in canary.cases:
            answer = await self.client.answer(case.prompt, case_schema(case, providers), max_tokens=MOST_TOKENS)
            compare_answer(case, answer.text)
        return Agreement(len(canary.cases), None)

    async def _watch(self) -> None:
        """Return never; raise where the engine is gone. A busy one may be slow to list its models."""
        missed = 0
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self.process is not None:
                self.process.require_alive()
            try:
                await self.client.models()
                missed = 0
            except EngineFailure as failure:
                missed += 1
                if failure.kind == "refused" or missed > (1 if failure.kind == "down" else MOST_SLOW):
                    raise

    def _set(self, state: EngineState) -> None:
        self.state = state
        self._changed.set()


def _legal(parse: Callable[[], Decision]) -> Decision:
    try:
        return parse()
    except ModelError as error:
        raise EngineFailure(str(error), kind="invalid") from error
