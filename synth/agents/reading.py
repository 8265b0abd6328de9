"""How the case-based agent reads: a question's names, numbers and operation, and the advice in a memory's plain text.

Nothing here knows a provider, a family of tasks or a template: the same few rules of English read any text.
Quoted words are taken as names of things on pages; `search for`, `open`, `read`, `for each` and `answer with` as steps;
words of refusal (`not`, `never`, `avoid`) turn a name into one to avoid; `{braces}` are blanks to fill.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from providers.lexical import tokenise

Kind = Literal["value", "extreme", "count"]

_LARGEST = frozenset(
    (
        "largest highest most greatest biggest longest oldest maximum top tops leads leading longer larger higher "
        "greater bigger more heaviest tallest richest ahead upper peak tops best"
    ).split()
)
_SMALLEST = frozenset(
    (
        "smallest lowest least fewest youngest shortest minimum bottom trails smaller lower fewer less poorest "
        "slimmest lightest behind trail minimal"
    ).split()
)
_ABOVE = tuple(
    (
        "above|over|more than|exceeding|exceeds|exceed|greater than|higher than|beyond|at least|surpass|surpasses|"
        "pass|passes|topping|in excess of"
    ).split("|")
)
_BELOW = tuple(
    (
        "below|under|less than|fewer than|lower than|short of|beneath|at most|smaller than|miss|misses|"
        "fall short of|not reach"
    ).split("|")
)
_WITH_VALUE = re.compile(
    r"\b(?:and|plus|add|mention|with|together|at what)\b[^.?]*\b(?:figure|value|number|amount|much|level|score|what)\b",
    re.I,
)
_REFUSAL = re.compile(r"\b(not|never|avoid|instead of|wrong|distrust|skip|do not|don't)\b", re.I)
_FAILED = re.compile(r"\b(?:result|outcome)\b[^.\n]*\b(?:wrong|failed|incorrect|failure)\b", re.I)
_QUOTED = re.compile(r'"([^"]{1,120})"')
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_THRESHOLD = re.compile(
    r"(?:" + "|".join(word.replace(" ", r"\s+") for word in _ABOVE + _BELOW) + r")\s+(?:\w+\s+)?[$€£]?(-?[\d.,]*\d)"
    r"(?:\s*(thousand|million|billion|trillion)\b)?",
    re.I,
)
_SCALE = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_NAME_WORD = r"(?:[A-ZÀ-ÞŌ][\w'’ʻ-]*(?:\.\w[\w'’-]*)*|d'[A-Z][\w-]*)"
_NAME = re.compile(
    rf"{_NAME_WORD}(?:(?:\s+(?:of\s+the|of|the|da|de|du|al|la|el|i|ou|um|der|and\s+the)\s+|\s+){_NAME_WORD}|\s+\([A-Z][\w-]*\))*"
)
_OPENERS = frozenset(
    (
        "a all among and as at according back between by compare consider count do does for from give go going has "
        "have here how if in is it its let list look name of on one out over pick please put say search see share "
        "since so state take tell than that the there these they this to today two three under until using want we "
        "were what whatever when where which who whose with would find i i'm could can my our get given right latest "
        "currently nowadays report suppose help determine check across inside within every each looking comparing "
        "counting work say"
    ).split()
)


KINSHIP = 2
"""Content words that a memory's text must share with a question (all of them, of a shorter one) before its short cuts
are tried."""


@dataclass(frozen=True)
class Operation:
    """What has to be done with the values found."""

    kind: Kind
    direction: int = 0
    """1 for the largest or above, -1 for the smallest or below, 0 for a plain value."""
    threshold: float | None = None
    with_value: bool = False


def read_operation(text: str) -> Operation:
    """The operation that a question (or the end of a plan) asks for."""
    lowered = text.lower()
    threshold = _THRESHOLD.search(text)
    if threshold and re.search(r"\b(how many|how often|number of|count|tally|total up)\b", lowered):
        amount = float(threshold.group(1).replace(",", "")) * _SCALE.get((threshold.group(2) or "").lower(), 1.0)
        above = any(re.match(word.replace(" ", r"\s+"), threshold.group(0), re.I) for word in _ABOVE)
        return Operation("count", 1 if above else -1, amount)
    direction = read_direction(lowered)
    if direction:
        return Operation("extreme", direction, with_value=bool(_WITH_VALUE.search(text)))
    return Operation("value")


_FIRST_PLACE = re.compile(r"\b(comes? (?:in )?first|in (?:the )?lead|at the head|head of|first place|in front)\b")
_LAST_PLACE = re.compile(r"\b(comes? (?:in )?last|at the (?:very )?end|last place|tail of)\b")
_DESCRIBED = re.compile(
    r"\b(?:tallest|highest|top|topmost|lowest|largest|biggest)\s+(?:\w+\s+){0,2}(?:is|named|called)\b|"
    r"\bas its (?:tallest|highest|top|topmost|lowest|largest|biggest)\b"
)


def read_direction(text: str) -> int:
    """1 or -1 for the first superlative or comparative in the text, 0 where there is none.

    A superlative that only describes a thing already named (`whose highest point is ...`) asks for nothing.
    """
    lowered = _DESCRIBED.sub(" ", text.lower())
    if _FIRST_PLACE.search(lowered):
        return 1
    if _LAST_PLACE.search(lowered):
        return -1
    for word in re.findall(r"[a-z]+", lowered):
        if word in _LARGEST:
            return 1
        if word in _SMALLEST:
            return -1
    return 0


def direction_words(text: str) -> list[str]:
    """The superlatives and comparatives of a text, in order."""
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word in _LARGEST or word in _SMALLEST]


def read_names(text: str) -> list[str]:
    """Proper names and quoted or dotted tokens of a question, in order.

    A capital that opens a sentence may be an ordinary word: it counts as a name only where nothing else does, or where
    a list or a possessive shows it to be one. Acronyms (`GDP`) are words.
    """
    found: list[tuple[int, str]] = [(m.start(), m.group(1)) for m in _QUOTED.finditer(text)]
    found += [(m.start(), m.group(0)) for m in re.finditer(r"(?<![\w.])\.[a-z]{2}\b", text)]
    doubtful: list[tuple[int, str]] = []
    bare = _QUOTED.sub(lambda m: " " * len(m.group(0)), text)
    for match in _NAME.finditer(bare):
        start, name = match.start(), match.group(0)
        opens = _opens_sentence(bare, start)
        while opens and name.partition(" ")[0].lower().rstrip(",:'") in _OPENERS:
            start += len(name.partition(" ")[0]) + 1
            name = re.sub(r"^(?:of\s+the|of|the|and\s+the)\s+", "", name.partition(" ")[2])
            opens = False
        name = re.sub(r"^(?:[A-Z]{2,}\s+(?:of\s+(?:the\s+)?)?)+", "", name + " ").strip()
        name = name.rstrip(".,:;").removesuffix("'s").removesuffix("’s")
        if len(name) < 2 or name.isupper():
            continue
        listed = re.match(r"(?:'s|’s|,|\s+and\s+[A-Z])", bare[match.end() - 2 :].lstrip("abcdefghijklmnopqrstuvwxyz"))
        sure = not opens or " " in name or listed
        (found if sure else doubtful).append((start, name))
    return list(dict.fromkeys(name for _, name in sorted(found or doubtful)))


def _opens_sentence(text: str, start: int) -> bool:
    before = text[:start].rstrip()
    return not before or before[-1] in ".?!:;"


@dataclass(frozen=True)
class Question:
    """A question as the agent reads it."""

    text: str
    words: frozenset[str]
    names: tuple[str, ...]
    years: tuple[str, ...]
    operation: Operation

    @classmethod
    def read(cls, text: str) -> Question:
        operation = read_operation(text)
        names = read_names(text)
        if operation.kind != "extreme":
            names = _joined(names, text)
        named = {word for name in names for word in word_keys(name)}
        return cls(text, word_keys(text) - named, tuple(names), tuple(_YEAR.findall(text)), operation)


def _joined(names: list[str], text: str) -> list[str]:
    """`Trinidad and Tobago` is one name where the question is about one thing."""
    joined: list[str] = []
    for name in names:
        if joined and f"{joined[-1]} and {name}" in text:
            joined[-1] = f"{joined[-1]} and {name}"
        else:
            joined.append(name)
    return joined


@lru_cache(maxsize=65536)
def word_keys(text: str) -> frozenset[str]:
    """The content words of a text, cut to six letters so that `archive` and `archived` are one."""
    return frozenset(word[:6] for word in tokenise(text))


StepKind = Literal["search", "open", "read", "each", "answer"]


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan found in a memory.

    `each` loops over names: `argument` is the page to open for each, `label` what to read there.
    """

    kind: StepKind
    argument: str = ""
    label: str = ""


@dataclass(frozen=True)
class Plan:
    """An ordered procedure found in a memory, with the words of the task it came from."""

    cue: str
    steps: tuple[PlanStep, ...]
    ending: str


@dataclass(frozen=True)
class Mention:
    """A name on pages that the memory speaks of; `weight` below zero: to avoid."""

    name: str
    words: frozenset[str]
    weight: float
    cue: frozenset[str]


@dataclass
class Advice:
    """All that a memory's text says, in its order."""

    mentions: list[Mention] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    titled: list[frozenset[str]] = field(default_factory=list)
    """The words of each block that shows a page opened by a title made of a name and a section."""

    def opens_by_title(self, words: frozenset[str]) -> bool:
        """Whether a text that has something to do with `words` shows pages opened by name and section at once."""
        least = min(KINSHIP, len(words))
        return any(len(block & words) >= least for block in self.titled)


_CLAUSE = re.compile(r"(?:\n|;\s+|(?<=[a-z\"\)}])\.\s+|\bthen\b)")


def read_advice(text: str) -> Advice:
    """Read any memory text: blocks stand between blank lines, earlier ones count more."""
    advice = Advice()
    for rank, block in enumerate(part for part in re.split(r"\n\s*\n", text) if part.strip()):
        _read_block(block, 0.9**rank, advice)
    return advice


def _read_block(block: str, weight: float, advice: Advice) -> None:
    steps: list[PlanStep] = []
    cue_lines: list[str] = []
    lost = failed(block)
    titled = False
    for line_rank, line in enumerate(block.splitlines()):
        cue = word_keys(_QUOTED.sub(" ", line))
        found = False
        for clause in _CLAUSE.split(line):
            refused = refuses(clause)
            step = None if refused else read_step(clause)
            if step is not None:
                steps.append(step)
                found = True
                titled |= step.kind in ("open", "each") and bool(re.search(r"\w\}?: \w", step.argument))
            sign = -1.0 if refused else -0.4 if lost else 1.0
            for name in _QUOTED.findall(clause):
                if step is not None and step.kind == "search":
                    continue
                advice.mentions.append(
                    Mention(name, word_keys(_after_colon(name)), sign * weight * 0.97**line_rank, cue)
                )
        if not found:
            cue_lines.append(line)
    if titled:
        advice.titled.append(word_keys(block))
    ordered = [step for step in steps if step.kind != "answer"]
    endings = [step.argument for step in steps if step.kind == "answer"]
    if endings and ordered and not lost:
        advice.plans.append(Plan(" ".join(cue_lines), tuple(ordered), endings[-1]))


def failed(block: str) -> bool:
    """Whether a block of a memory's text says that it tells of a run that failed."""
    return bool(_FAILED.search(block))


def refuses(clause: str) -> bool:
    """Whether the part of a clause that holds its quoted names, between colons, speaks against them."""
    bare = _QUOTED.sub('"', clause)
    return any(_REFUSAL.search(part) for part in bare.split(": ") if '"' in part)


def _after_colon(name: str) -> str:
    return name.rsplit(": ", 1)[-1]


def read_step(clause: str) -> PlanStep | None:
    """The step that a clause describes, or None."""
    lowered = clause.lower()
    quoted = _QUOTED.findall(clause)
    if "answer with" in lowered:
        return PlanStep("answer", clause[lowered.index("answer with") + len("answer with") :].strip(" ."))
    if not quoted:
        return None
    if "for each" in lowered:
        return PlanStep("each", quoted[0], quoted[1] if len(quoted) > 1 else "")
    if re.search(r"\bsearch(ed)? for\b", lowered):
        return PlanStep("search", quoted[0])
    if re.search(r"\bopen(ed)?\b", lowered):
        return PlanStep("open", quoted[0])
    if re.search(r"\bread\b", lowered):
        return PlanStep("read", quoted[0])
    return None
