"""The decision knowledge base that PromptRoute is given, mined once from forced exploration (MemAgent C.2).

Tasks fall into eight categories by keywords. Per provider the base holds success rates, the categories that it is
good at, and tasks that it won and lost; for each phase it holds rules that can decide without any model.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from providers.base import Gate, ProviderCard
from providers.types import Flow
from router.codec import empty_previews
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, InMode
from router.table import RoutingTable, TableRow

MIN_OCCURRENCES = 3
MIN_WIN_RATE = 0.4
"""What a Begin rule needs (MemAgent C.2)."""
WIN = 0.5
"""Mean correctness over arms and repeats from which a provider won a task."""
EXAMPLES = 3
"""Tasks won, and tasks lost, that are kept per provider and category."""

GENERAL = "general"
_KEYWORDS: dict[str, str] = {
    "image analysis": r"images?|photos?|photograph\w*|pictures?|diagrams?|charts?|paintings?|logos?|screenshots?",
    "web search": r"websites?|web ?pages?|urls?|online|internet|wikipedia|blogs?|articles?|news|search\w*|published",
    "calculation": r"how (?:many|much)|calculat\w+|comput\w+|sums?|averages?|differences?|percent\w*|ratios?|number of",
    "document / file": r"pdfs?|documents?|files?|spreadsheets?|excel|csv|attach\w+|slides?",
    "audio / video": r"audio|videos?|recordings?|podcasts?|songs?|youtube|mp3|films?|movies?|episodes?",
    "code": r"code|python|programs?|scripts?|functions?|algorithms?|repositor\w+|github|software",
    "multi-hop lookup": r"whose|which of|among|between|compar\w+|border\w*|neighbou?r\w*|of the \w+ (?:that|which)",
}
CATEGORIES = (*_KEYWORDS, GENERAL)
"""In the order in which they are tried; `general` takes what no keyword does."""
_PATTERNS = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in _KEYWORDS.items()}


def categorise(question: str) -> str:
    """The first category with a keyword in the question."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(question)), GENERAL)


class CategoryRecord(Flow):
    """How one provider did on the tasks of one category, and questions that tell it from the others."""

    category: str
    tasks: int
    wins: int
    won: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def win_rate(self) -> float:
        return self.wins / self.tasks


class ProviderKnowledge(Flow):
    """One provider's record. Tasks where it retrieved nothing are not counted."""

    provider: str
    tasks: int
    success_rate: float
    """Mean correctness, 0 to 1; 0 where there are no tasks."""
    affinities: tuple[str, ...]
    """Categories with enough tasks where it wins more often than it does overall, best first."""
    categories: tuple[CategoryRecord, ...]

    def of(self, category: str) -> CategoryRecord | None:
        return next((record for record in self.categories if record.category == category), None)


class BeginRule(Flow):
    """For tasks of this category, this provider has won often enough."""

    category: str
    provider: str
    occurrences: int
    win_rate: float


class InRules(Flow):
    """What to do with a working memory that has content, and with an empty one."""

    content: InMode = "query"
    empty: InMode = "no_op"


class KnowledgeBase(Flow):
    """All that exploration taught."""

    suite: str
    tasks: int
    providers: tuple[ProviderKnowledge, ...]
    begin_rules: tuple[BeginRule, ...]
    """By category in the fixed order, then by win rate, occurrences and the order of the config."""
    in_rules: InRules = InRules()
    end_gates: dict[str, Gate]

    @classmethod
    def from_table(cls, table: RoutingTable, cards: Sequence[ProviderCard]) -> Self:
        """Mine an exploration table; `cards` give the gates."""
        providers = tuple(_knowledge(name, table) for name in table.providers)
        rules = [
            BeginRule(category=category, provider=known.provider, occurrences=record.tasks, win_rate=record.win_rate)
            for category in CATEGORIES
            for known in providers
            if (record := known.of(category)) is not None
            and record.tasks >= MIN_OCCURRENCES
            and record.win_rate >= MIN_WIN_RATE
        ]
        rules.sort(key=lambda rule: (CATEGORIES.index(rule.category), -rule.win_rate, -rule.occurrences))
        return cls(
            suite=table.suite,
            tasks=len(table.rows),
            providers=providers,
            begin_rules=tuple(rules),
            end_gates={card.name: card.gate for card in cards},
        )

    def of(self, provider: str) -> ProviderKnowledge | None:
        """A provider's record; None for one that exploration did not have."""
        return next((known for known in self.providers if known.provider == provider), None)

    def rules_for(self, category: str) -> tuple[BeginRule, ...]:
        """The Begin rules of a category, best first."""
        return tuple(rule for rule in self.begin_rules if rule.category == category)


class KnowledgeRules:
    """The knowledge base decides alone: the category's best rule, else the provider that is best overall.

    Providers whose preview is empty are passed over while another has something to show.
    """

    name = "prompt_route_rules"

    def __init__(self, base: KnowledgeBase) -> None:
        self.base = base

    async def begin(self, context: BeginContext) -> BeginDecision:
        return self.decide(context)

    def decide(self, context: BeginContext, *, fallback: bool = False) -> BeginDecision:
        """The rules' choice; `fallback` marks it as standing in for a model's."""
        names = [preview.provider for preview in context.previews]
        empty = empty_previews(context)
        candidates = [name for name in names if name not in empty] or names
        for rule in self.base.rules_for(categorise(context.question)):
            if rule.provider in candidates:
                return BeginDecision(providers=(rule.provider,), fallback=fallback)
        rates = {known.provider: known.success_rate for known in self.base.providers}
        best = max(candidates, key=lambda name: rates.get(name, -1.0), default=None)
        return BeginDecision(providers=() if best is None else (best,), fallback=fallback)

    async def step(self, context: InContext) -> InDecision:
        rules = self.base.in_rules
        return InDecision(action=rules.content if context.summary else rules.empty)

    async def end(self, context: EndContext) -> EndDecision:
        gates = {card.name: self.base.end_gates.get(card.name, card.gate) for card in context.cards}
        solved = context.outcome.correct is True
        return EndDecision(providers=tuple(name for name, gate in gates.items() if gate == "all" or solved))


def _knowledge(provider: str, table: RoutingTable) -> ProviderKnowledge:
    """Count a provider's tasks, category by category."""
    rates: dict[str, float] = {}
    leads: dict[str, float] = {}
    rows: dict[str, list[TableRow]] = defaultdict(list)
    for row in table.rows:
        rate = row.correctness(provider)
        if rate is None or row.cell_mean(provider, "empty") == 1.0:
            continue
        rates[row.task_id] = rate
        leads[row.task_id] = rate - _mean(
            other for name in table.providers if name != provider and (other := row.correctness(name)) is not None
        )
        rows[categorise(row.question)].append(row)
    categories = tuple(_record(name, rows[name], rates, leads) for name in CATEGORIES if rows[name])
    overall = sum(rate >= WIN for rate in rates.values()) / len(rates) if rates else 0.0
    strong = [record for record in categories if record.tasks >= MIN_OCCURRENCES and record.win_rate > overall]
    return ProviderKnowledge(
        provider=provider,
        tasks=len(rates),
        success_rate=_mean(rates.values()),
        affinities=tuple(record.category for record in sorted(strong, key=lambda record: -record.win_rate)),
        categories=categories,
    )


def _record(
    category: str, rows: Sequence[TableRow], rates: Mapping[str, float], leads: Mapping[str, float]
) -> CategoryRecord:
    """Wins among the tasks of one category; as examples those where the provider stood out most from the others."""
    won = [row for row in rows if rates[row.task_id] >= WIN]
    lost = [row for row in rows if rates[row.task_id] < WIN]
    return CategoryRecord(
        category=category,
        tasks=len(rows),
        wins=len(won),
        won=tuple(row.question for row in sorted(won, key=lambda row: -leads[row.task_id])[:EXAMPLES]),
        lost=tuple(row.question for row in sorted(lost, key=lambda row: leads[row.task_id])[:EXAMPLES]),
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
