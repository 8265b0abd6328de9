"""What is checked before the first step of a training: that it trains what it says, on what it says."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from providers.errors import EngineError
from router.chat import answer_tokens, chat_text, conversation_text, end_token, pad_token, stop_tokens
from router.marks import NO, YES, MarkTokenizer
from synth.rows import PHASES, Row
from train.job import Job
from train.trainers import Collate, Material, modules_named

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SAME_LOSS = {"float32": 1e-4, "bfloat16": 3e-2}
"""Largest relative difference of the loss between the way that is trained and the plain one, by the number format."""


class Guard(BaseModel, frozen=True):
    """One check and what it found."""

    name: str
    passed: bool
    found: str
    row: str = ""
    """The row that fails, where one does."""


class PhaseTokens(BaseModel, frozen=True):
    """What is trained in one phase."""

    phase: str
    rows: int
    trained: int
    """Tokens (json) or marks with a label (marks) that carry loss."""
    masked: int
    """Tokens that are read and carry none."""
    median: int
    """Tokens of a row: the median."""
    longest: int
    over: int
    """Rows longer than `train.max_tokens`. None is ever cut or dropped: one stops the training."""


class Guards(BaseModel, frozen=True):
    """All checks of one training."""

    base: str
    codec: str
    way: str
    """How rows that share a prompt are computed."""
    max_tokens: int
    tokens: tuple[PhaseTokens, ...]
    checks: tuple[Guard, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def require(self) -> None:
        """Raise `EngineError` with the first failing check and its row."""
        for check in self.checks:
            if not check.passed:
                row = f" The row: {check.row}" if check.row else ""
                raise EngineError(f"The training would not do what it says: {check.name}: {check.found}.{row}")


def row_guards(job: Job, tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[PhaseTokens, ...], list[Guard]]:
    """The checks that need no model: lengths, labels and the template."""
    count = _counter(job, tokenizer)
    sizes = [(row, *count(row)) for row in job.rows]
    tokens = tuple(_phase_tokens(phase, sizes, job.config.max_tokens) for phase in PHASES)
    checks = [_begin_rows(job), _lengths(sizes, job.config.max_tokens)]
    checks += _marks_checks(job, tokenizer) if job.config.codec == "marks" else _json_checks(job, tokenizer)
    return tokens, checks


def model_guards(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase, given: Material) -> list[Guard]:
    """The checks that need the model with its adapters: stop tokens, modules, the shared way, gradients.

    The model is left as it was.
    """
    checks = [_modules(job, model)]
    if job.config.codec == "json":
        checks.append(_padding(model, tokenizer))
    if given.plain is not None:
        checks.append(_same_loss(job, model, given, given.plain))
    checks.append(_gradients(model, given))
    return checks


def guard_lines(guards: Guards) -> list[str]:
    """The guards as a table for a terminal."""
    head = ("phase", "rows", "trained", "masked", "median", "longest", "over")
    table = [head, *(tuple(str(getattr(phase, name)) for name in head) for phase in guards.tokens)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [f"{guards.base}, codec {guards.codec}, {guards.way}; at most {guards.max_tokens} tokens"]
    for row in table:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells))
    for check in guards.checks:
        lines.append(f"  {'ok    ' if check.passed else 'FAILED'}  {check.name}: {check.found}")
        if check.row:
            lines.append(f"          {check.row}")
    return lines


Sized = tuple[Row, int, int]
"""A row, its tokens, and how many labels it carries."""


def _counter(job: Job, tokenizer: PreTrainedTokenizerBase) -> Callable[[Row], tuple[int, int]]:
    if job.config.codec == "marks":
        marks = MarkTokenizer(tokenizer)
        return lambda row: (
            len(marks.encode(row.segments).tokens),
            sum(target is not None for target in row.targets),
        )

    def count(row: Row) -> tuple[int, int]:
        prompt = tokenizer(chat_text(tokenizer, row.prompt), add_special_tokens=False)["input_ids"]
        answer = answer_tokens(tokenizer, row.completion)
        return len(prompt) + len(answer), len(answer)

    return count


def _phase_tokens(phase: str, sizes: Sequence[Sized], limit: int) -> PhaseTokens:
    own = [(tokens, labels) for row, tokens, labels in sizes if row.phase == phase]
    lengths = [tokens for tokens, _ in own] or [0]
    trained = sum(labels for _, labels in own)
    return PhaseTokens(
        phase=phase,
        rows=len(own),
        trained=trained,
        masked=sum(tokens for tokens, _ in own) - trained,
        median=int(statistics.median(lengths)),
        longest=max(lengths),
        over=sum(tokens > limit for tokens in lengths),
    )


def _begin_rows(job: Job) -> Guard:
    """Without Begin rows nothing is learned about choosing; In or End may be left out on purpose (`dataset.max_in`)."""
    empty = [phase for phase in PHASES if not job.phases.get(phase)]
    mend = "explore more tasks, or loosen the rewards section" if "begin" in empty else "its decisions stay untrained"
    found = f"no row for {', '.join(empty)}; {mend}" if empty else "every phase has rows"
    return Guard(name="phases", passed="begin" not in empty, found=found)


def _lengths(sizes: Sequence[Sized], limit: int) -> Guard:
    over = [(row, tokens) for row, tokens, _ in sizes if tokens > limit]
    if not over:
        return Guard(name="length", passed=True, found="no row is truncated or dropped")
    row, tokens = max(over, key=lambda pair: pair[1])
    found = f"{len(over)} of {len(sizes)} rows are longer than train.max_tokens = {limit}, the longest has {tokens}"
    return Guard(name="length", passed=False, found=found, row=_shown(row))


def _marks_checks(job: Job, tokenizer: PreTrainedTokenizerBase) -> Iterator[Guard]:
    marks = MarkTokenizer(tokenizer)
    read = tuple(str(tokenizer.decode([token])) for token in (marks.yes, marks.no))
    yield Guard(name="answers", passed=read == (YES, NO), found=f"the marks compare {read[0]!r} and {read[1]!r}")
    for row in job.rows:
        tokens = marks.encode(row.segments)
        start = 0
        for place, (segment, mark) in enumerate(zip(row.segments, tokens.marks, strict=True)):
            text = tokenizer.decode(list(tokens.tokens[start : mark + 1]), clean_up_tokenization_spaces=False)
            if (place and text != segment) or not str(text).endswith(segment):
                found = f"candidate {row.candidates[place]}'s line is read as {text!r}"
                yield Guard(name="labels", passed=False, found=found, row=_shown(row))
                return
            start = mark + 1
        wrong = [target for target in row.targets if target is not None and not 0 <= target <= 1]
        if wrong or all(target is None for target in row.targets):
            found = f"labels {list(row.targets)} are not shares of 1" if wrong else "no candidate has a label"
            yield Guard(name="labels", passed=False, found=found, row=_shown(row))
            return
    yield Guard(name="labels", passed=True, found="every mark stands at the end of its candidate's line")


def _json_checks(job: Job, tokenizer: PreTrainedTokenizerBase) -> Iterator[Guard]:
    end = str(tokenizer.decode([end_token(tokenizer)]))
    checks: dict[str, tuple[str, Callable[[Row], bool]]] = {
        "labels": (
            f"they decode to the canonical decision and one {end}",
            lambda row: (
                tokenizer.decode(answer_tokens(tokenizer, row.completion), clean_up_tokenization_spaces=False)
                == row.completion + end
            ),
        ),
        "template": (
            "a whole conversation begins with the prompt, its answer and the end",
            lambda row: conversation_text(tokenizer, row.prompt, row.completion).startswith(
                chat_text(tokenizer, row.prompt) + row.completion + end
            ),
        ),
    }
    for name, (holds, check) in checks.items():
        wrong = next((row for row in job.rows if not check(row)), None)
        found = holds if wrong is None else f"it is not so that {holds}"
        yield Guard(name=name, passed=wrong is None, found=found, row=_shown(wrong) if wrong else "")


def _padding(model: Any, tokenizer: PreTrainedTokenizerBase) -> Guard:
    ends = stop_tokens(model, tokenizer)
    pad = pad_token(tokenizer, ends)
    found = f"{tokenizer.decode([pad])!r}, and an answer ends at {[str(tokenizer.decode([end])) for end in ends]}"
    return Guard(name="padding", passed=pad not in ends, found=found)


def _modules(job: Job, model: Any) -> Guard:
    """Each name must have adapters, as many as there are such layers in the upper share."""
    adapted = {name for name, _ in model.named_modules() if name.endswith(".lora_A")}
    counts = {name: sum(full.endswith(f".{name}.lora_A") for full in adapted) for name in job.config.lora_modules}
    missing = [name for name, count in counts.items() if not count]
    base = model.get_base_model()  # where layers without adapters are still plain linear ones
    found = ", ".join(f"{name} {n} of {n + len(modules_named(base, name))}" for name, n in counts.items())
    return Guard(name="adapters", passed=not missing, found=found)


def _same_loss(job: Job, model: Any, given: Material, collate: Collate) -> Guard:
    """The loss of a few examples in the way that is trained, and in the plain way that it has to equal."""
    import torch

    marks = job.config.codec == "marks"
    examples = _two_alike(given.examples) if marks else [_most_answers(given.examples)]
    with torch.no_grad(), _still(model):
        spared, plain = (float(given.loss(model, _to(way(examples), model), None)) for way in (given.collate, collate))
    allowed = SAME_LOSS[job.config.dtype]
    difference = abs(spared - plain) / max(abs(plain), 1e-6)
    name, way, setting = (
        ("lower layers", "with the lower layers' states kept", "train.cache_lower")
        if marks
        else ("shared context", f"with {len(examples[0]['answers'])} answers in one", "train.shared_context")
    )
    found = f"loss {spared:.5f} {way}, {plain:.5f} the plain way"
    if difference > allowed:
        found += f"; they differ by more than {allowed:g} of it: set {setting} to false"
    return Guard(name=name, passed=difference <= allowed, found=found)


def _two_alike(examples: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first two of one phase, which share their beginning."""
    phase = examples[0]["phase"]
    return [example for example in examples if example["phase"] == phase][:2]


def _most_answers(examples: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return max(examples, key=lambda e: (len(e["answers"]), -len(e["input_ids"])))


def _gradients(model: Any, given: Material) -> Guard:
    """Every adapter tensor has a gradient once a step is taken (before it, one factor of each pair is all zeros)."""
    import torch

    trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    kept = {name: tensor.detach().clone() for name, tensor in trained.items()}
    example = min(given.examples, key=lambda e: len(e["input_ids"]))
    inputs = _to(given.collate([example]), model)
    try:
        with _still(model):
            for _ in range(2):
                model.zero_grad()
                given.loss(model, inputs, None).backward()  # type: ignore[no-untyped-call]
                reached = {name for name, tensor in trained.items() if tensor.grad is not None and tensor.grad.any()}
                with torch.no_grad():
                    for name in reached:
                        trained[name] -= 1e-2 * torch.sign(trained[name].grad)
    finally:
        model.zero_grad()
        with torch.no_grad():
            for name, tensor in trained.items():
                tensor.copy_(kept[name])
    missing = sorted(trained.keys() - reached)
    found = f"{len(reached)} of {len(trained)} adapter tensors have one after a step"
    return Guard(
        name="gradients", passed=bool(trained) and not missing, found=found + (f"; not {missing[0]}" if missing else "")
    )


class _still:
    """Dropout off, and back on as it was."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._training = self._model.training
        self._model.eval()

    def __exit__(self, *_: object) -> None:
        self._model.train(self._training)


def _to(inputs: Mapping[str, Any], model: Any) -> dict[str, Any]:
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}


def _shown(row: Row) -> str:
    text = " ".join((row.text).split())
    return f"{row.phase} of task {row.task_id}: {text[:200]!r}"
