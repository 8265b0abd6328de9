"""From decisions and outcomes to an `Evaluation`: pure, no model, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evaluation import metrics
from evaluation.failures import failures
from evaluation.metrics import Alone, Columns, Outcomes, mean_or_none, taken
from evaluation.result import (
    ROUTERS,
    ArmCost,
    Comparison,
    Decisions,
    Evaluation,
    FamilyCell,
    Kind,
    PolicyResult,
    PoolOracle,
    ShuffledArm,
)
from evaluation.statistics import Bootstrap, Estimate, SignFlip, Values, benjamini_hochberg, entropy_bits, holm
from evaluation.words import name_of
from providers.base import ProviderCard
from router.codec import CodecName
from router.decisions import NONE
from router.policies.registry import ABLATIONS
from router.table import RoutingTable

ORACLE, ORACLE_CROSSFIT = "oracle", "oracle_crossfit"
IN_ONLY = "in_only"
COLLAPSE = 0.9
"""A policy that sends more than this share of tasks to one arm is warned about."""


@dataclass(frozen=True)
class Choice:
    """What one policy picked: columns per policy seed, and the per-task mean of what they achieved."""

    columns: tuple[Columns, ...]
    values: Values
    fallbacks: int = 0
    constrained: int = 0


@dataclass(frozen=True)
class Material:
    """All that an evaluation is computed from."""

    run: str
    seed: int
    table: RoutingTable
    explore: RoutingTable
    cards: tuple[ProviderCard, ...]
    decisions: Mapping[str, Decisions]
    resamples: int
    repeats: int
    shuffled: RoutingTable | None = None
    alone: RoutingTable | None = None
    chars_per_token: float | None = None
    codec: CodecName = "marks"
    missing: Mapping[str, str] = field(default_factory=dict)
    in_mode_changes: float | None = None
    agent: str = ""
    recommended_on_dev: str | None = None
    """What the dev evaluation recommended; used on every other split."""


def kind_of(policy: str, providers: Sequence[str]) -> Kind:
    """Which group of the table a policy stands in."""
    if policy in (ORACLE, ORACLE_CROSSFIT):
        return "bound"
    if policy in ROUTERS:
        return "router"
    if policy in providers:
        return "single"
    if policy in ABLATIONS:
        return "ablation"
    return "baseline" if policy in (NONE, IN_ONLY, "random") else "simple"


class _Judge:
    """The tables of one split with what every policy is held against."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.outcomes = Outcomes.of(material.table)
        self.explored = Outcomes.of(material.explore)
        self.best_single = metrics.best_provider(self.explored)
        self.bootstrap = Bootstrap(len(material.table.rows), material.resamples, material.seed)
        self._flips = SignFlip(len(material.table.rows), material.resamples, material.seed)
        self.none = self.outcomes.arm(NONE)
        self.best = self.outcomes.arm(self.best_single) if self.best_single else np.full_like(self.none, np.nan)
        columns = metrics.oracle_columns(self.outcomes.correct)
        self.oracle = Choice((columns,), taken(self.outcomes.correct, columns))
        crossed = metrics.cross_fit(self.outcomes)
        self.crossfit = Choice(crossed.columns, crossed.values) if crossed else None
        self.alone = Alone.of(material.alone, self.outcomes.task_ids) if material.alone else None
        self.choices = {name: self._choice(name, made) for name, made in material.decisions.items()}
        self.choices[ORACLE] = self.oracle
        if self.crossfit:
            self.choices[ORACLE_CROSSFIT] = self.crossfit
        values = [choice.values for choice in self.choices.values()]
        self._own = dict(zip(self.choices, self.bootstrap.estimates(values), strict=True))
        deltas = self.bootstrap.estimates([own - self.best for own in values])
        self._delta = dict(zip(self.choices, deltas, strict=True))

    def _choice(self, name: str, made: Decisions) -> Choice:
        columns = tuple(self.outcomes.columns(picks, name) for picks in made.arms)
        values = metrics.average([taken(self.outcomes.correct, picks) for picks in columns])
        return Choice(columns, values, made.fallbacks, made.constrained)

    def p_values(self, differences: Sequence[Values]) -> list[float | None]:
        return self._flips.p_values(differences)

    def shares(self, choice: Choice, chosen: np.ndarray | None = None) -> dict[str, float]:
        """Share of tasks (all, or those in the mask) that went to each arm."""
        picks = np.concatenate([columns if chosen is None else columns[chosen] for columns in choice.columns])
        counts = np.bincount(picks, minlength=len(self.outcomes.arms))
        return {arm: float(count) / max(len(picks), 1) for arm, count in zip(self.outcomes.arms, counts, strict=True)}

    def result(self, name: str) -> PolicyResult:
        choice, outcomes = self.choices[name], self.outcomes
        estimate, delta = self._own[name], self._delta[name]
        accuracy, ci_low, ci_high = _spread(estimate)
        difference, delta_low, delta_high = _spread(delta)
        injected = mean_or_none(metrics.average([taken(outcomes.injected, c) for c in choice.columns]))
        shares = self.shares(choice)
        families = np.array(outcomes.families)
        crossfit = self.crossfit.values if self.crossfit else np.full_like(self.none, np.nan)
        return PolicyResult(
            kind=kind_of(name, self.material.table.providers),
            accuracy=accuracy,
            ci_low=ci_low,
            ci_high=ci_high,
            n=estimate.n if estimate else 0,
            unscored=len(outcomes.task_ids) - (estimate.n if estimate else 0),
            unscored_share=_unscored_share(choice.values),
            accuracy_by_repeat=self._by_repeat(name, choice),
            delta_vs_best_single=difference,
            delta_ci_low=delta_low,
            delta_ci_high=delta_high,
            delta_n=delta.n if delta else 0,
            regret=mean_or_none(self.oracle.values - choice.values),
            regretted=self._regretted(choice),
            headroom_captured=metrics.covered(choice.values, self.none, crossfit),
            headroom_captured_plain=metrics.covered(choice.values, self.none, self.oracle.values),
            headroom_over_best=metrics.covered(choice.values, self.best, crossfit),
            steps=mean_or_none(metrics.average([taken(outcomes.steps, c) for c in choice.columns])),
            injected_chars=injected,
            injected_tokens=self.tokens(injected),
            shares=shares,
            shares_by_family={
                family: self.shares(choice, families == family) for family in metrics.family_names(outcomes)
            },
            entropy=entropy_bits(list(shares.values())),
            by_family=metrics.by_family(outcomes, choice.values),
            failures=failures(outcomes, choice.columns) if name != ORACLE_CROSSFIT else None,
            fallbacks=choice.fallbacks,
            constrained=choice.constrained,
            legal_share=self._legal(name, choice),
            seeds=1 if name == ORACLE_CROSSFIT else len(choice.columns),
        )

    def working(self, alone: Alone) -> PolicyResult:
        """Working memory alone: not an arm of the table, so the oracle does not choose it and it has no regret."""
        values, families = alone.working, metrics.family_names(self.outcomes)
        estimate, delta = self.bootstrap.estimate(values), self.bootstrap.difference(values, self.best)
        accuracy, ci_low, ci_high = _spread(estimate)
        difference, delta_low, delta_high = _spread(delta)
        injected = mean_or_none(alone.injected)
        nothing = {arm: float(arm == NONE) for arm in self.outcomes.arms}
        return PolicyResult(
            kind="baseline",
            accuracy=accuracy,
            ci_low=ci_low,
            ci_high=ci_high,
            n=estimate.n if estimate else 0,
            unscored=int(np.isnan(values).sum()),
            unscored_share=_unscored_share(values),
            accuracy_by_repeat=tuple(mean_or_none(part) for part in alone.by_repeat),
            delta_vs_best_single=difference,
            delta_ci_low=delta_low,
            delta_ci_high=delta_high,
            delta_n=delta.n if delta else 0,
            regret=None,
            steps=mean_or_none(alone.steps),
            injected_chars=injected,
            injected_tokens=self.tokens(injected),
            shares=nothing,
            shares_by_family=dict.fromkeys(families, nothing),
            entropy=0.0,
            by_family=metrics.by_family(self.outcomes, values),
        )

    def tokens(self, chars: float | None) -> float | None:
        """Characters as tokens of the router's tokenizer, at its mean rate on the retrieved texts."""
        rate = self.material.chars_per_token
        return None if chars is None or rate is None else chars / rate

    def _legal(self, name: str, choice: Choice) -> float | None:
        """The share of answers in words that were legal by themselves."""
        if self.material.codec != "json" or name not in ("trained", "untrained"):
            return None
        illegal = choice.fallbacks + choice.constrained
        return 1 - illegal / max(1, len(self.outcomes.task_ids) * len(choice.columns))

    def _by_repeat(self, name: str, choice: Choice) -> tuple[float | None, ...]:
        if name == ORACLE_CROSSFIT:
            return ()  # its columns are chosen on one half of the repeats each
        draws = [matrix for _, matrix in sorted(self.outcomes.by_repeat.items())]
        return tuple(mean_or_none(metrics.average([taken(draw, c) for c in choice.columns])) for draw in draws)

    def _regretted(self, choice: Choice) -> float | None:
        """Over all policy seeds and the tasks whose own arm is scored."""
        values = np.concatenate([taken(self.outcomes.correct, columns) for columns in choice.columns])
        best = np.tile(self.oracle.values, len(choice.columns))
        scored = ~np.isnan(values)
        return float((best[scored] > values[scored]).mean()) if scored.any() else None


def compare(material: Material) -> Evaluation:
    """All figures of one split."""
    judge = _Judge(material)
    outcomes = judge.outcomes
    policies = _with_holm(judge, {name: judge.result(name) for name in judge.choices})
    if judge.alone is not None and NONE in policies:
        policies = _after_none(policies, judge.working(judge.alone))
    routers: dict[str, PolicyResult] = {name: policies[name] for name in ROUTERS if name in policies}
    hindsight = metrics.best_provider(outcomes)
    luck = _luck(judge)
    split = material.table.split
    recommended = _best(routers) if split == "dev" else material.recommended_on_dev
    family_cells = _family_cells(judge)
    shuffled = _shuffled(judge)
    return Evaluation(
        run=material.run,
        agent=material.agent,
        suite=material.table.suite,
        split=split,
        seed=material.seed,
        n=len(outcomes.task_ids),
        repeats=material.repeats,
        providers=material.table.providers,
        titles=_titles(material),
        families={family: outcomes.families.count(family) for family in metrics.family_names(outcomes)},
        policies=policies,
        missing=dict(material.missing),
        best_single=judge.best_single,
        best_single_accuracy=mean_or_none(judge.best),
        best_single_hindsight=hindsight,
        best_single_hindsight_accuracy=mean_or_none(outcomes.arm(hindsight)) if hindsight else None,
        oracle=mean_or_none(judge.oracle.values),
        oracle_crossfit=mean_or_none(judge.crossfit.values) if judge.crossfit else None,
        oracle_of_one_draw=mean_or_none(metrics.oracle_of_one_draw(outcomes)),
        oracle_of_k=_oracle_of_k(judge),
        best_of_k_none=mean_or_none(luck[1]) if luck else None,
        best_of_k=luck[0] if luck else None,
        recommended=recommended,
        headroom_captured={name: result.headroom_captured for name, result in routers.items()},
        headroom_captured_crossfit={name: result.headroom_captured for name, result in routers.items()},
        headroom_captured_plain={name: result.headroom_captured_plain for name, result in routers.items()},
        headroom_over_best={name: result.headroom_over_best for name, result in routers.items()},
        shuffled_loss_share=_loss_share(shuffled.get(judge.best_single or "")),
        shuffled_loss_share_working=_loss_share_working(shuffled.get(judge.best_single or "")),
        shuffled=shuffled,
        provider_by_family=family_cells,
        best_in_family=_best_in_family(family_cells, material.table.providers),
        unique_solves=metrics.unique_solves(outcomes),
        coverage=metrics.coverage(outcomes),
        arms={arm: _arm_cost(judge, arm) for arm in outcomes.arms},
        comparisons=_comparisons(judge, policies),
        in_mode_changes=material.in_mode_changes,
        warnings=_warnings(judge, policies, recommended),
        notes=_notes(judge, policies, recommended),
    )


def _titles(material: Material) -> dict[str, str]:
    return {card.name: card.title for card in material.cards}


def _spread(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (estimate.mean, estimate.low, estimate.high) if estimate else (None, None, None)


def _best(results: Mapping[str, PolicyResult]) -> str | None:
    scored = [name for name, result in results.items() if result.accuracy is not None]
    return max(scored, key=lambda name: results[name].accuracy or 0.0) if scored else None


def _after_none(policies: dict[str, PolicyResult], working: PolicyResult) -> dict[str, PolicyResult]:
    """The row of working memory alone stands beside no memory."""
    first = {name: result for name, result in policies.items() if name == NONE}
    return first | {IN_ONLY: working} | policies


def _arm_cost(judge: _Judge, arm: str) -> ArmCost:
    column = judge.outcomes.arms.index(arm)
    begin = mean_or_none(judge.outcomes.begin_chars[:, column])
    seconds, accuracy = mean_or_none(judge.outcomes.seconds[:, column]), mean_or_none(judge.outcomes.arm(arm))
    return ArmCost(
        begin_chars=begin,
        begin_tokens=judge.tokens(begin),
        steps=mean_or_none(judge.outcomes.steps[:, column]),
        seconds=seconds,
        seconds_per_solved=seconds / accuracy if seconds is not None and accuracy else None,
    )


def _unscored_share(values: Values) -> float:
    return float(np.isnan(values).mean()) if values.size else 0.0


def _luck(judge: _Judge) -> tuple[int, Values] | None:
    """Best of k runs without memory: k arms where so many were made, else k repeats."""
    repeats = [matrix[:, 0] for _, matrix in sorted(judge.outcomes.by_repeat.items())]
    draws = judge.alone.draws if judge.alone is not None else np.stack(repeats, axis=1) if repeats else np.zeros((0, 0))
    k = min(len(judge.outcomes.arms), draws.shape[1])
    values = metrics.best_of_k(draws, k)
    return None if values is None else (k, values)


def _oracle_of_k(judge: _Judge) -> tuple[PoolOracle, ...]:
    found = []
    for pool in metrics.nested_pools(judge.explored):
        part = metrics.restricted(judge.outcomes, pool)
        crossed = metrics.cross_fit(part)
        found.append(
            PoolOracle(
                providers=pool,
                plain=mean_or_none(taken(part.correct, metrics.oracle_columns(part.correct))),
                crossfit=mean_or_none(crossed.values) if crossed else None,
            )
        )
    return tuple(found)


def _with_holm(judge: _Judge, policies: dict[str, PolicyResult]) -> dict[str, PolicyResult]:
    """Adjust the p of every policy that chooses, against the best single provider, for their number."""
    choosing = [name for name, result in policies.items() if result.kind in ("simple", "router")]
    found = judge.p_values([judge.choices[name].values - judge.best for name in choosing])
    p_values = {name: p for name, p in zip(choosing, found, strict=True) if p is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {name: result.model_copy(update={"p_holm": adjusted.get(name)}) for name, result in policies.items()}


def _family_cells(judge: _Judge) -> dict[str, dict[str, FamilyCell]]:
    outcomes, families = judge.outcomes, np.array(judge.outcomes.families)
    cells: dict[str, dict[str, FamilyCell]] = {}
    gains: dict[tuple[str, str], Values] = {}
    for arm in outcomes.arms:
        cells[arm] = {}
        for family in metrics.family_names(outcomes):
            inside = families == family
            values, none = outcomes.arm(arm)[inside], judge.none[inside]
            if arm != NONE:
                gains[arm, family] = np.where(inside, outcomes.arm(arm) - judge.none, np.nan)
            cells[arm][family] = FamilyCell(
                accuracy=mean_or_none(values),
                n=int((~np.isnan(values)).sum()),
                gain=mean_or_none(values - none),
                q=None,
            )
    found = zip(gains, judge.p_values(list(gains.values())), strict=True)
    p_values = {place: p for place, p in found if p is not None}
    for (arm, family), q in zip(p_values, benjamini_hochberg(list(p_values.values())), strict=True):
        cells[arm][family] = cells[arm][family].model_copy(update={"q": q})
    return cells


def _best_in_family(
    cells: Mapping[str, Mapping[str, FamilyCell]], providers: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    best = {}
    for family in cells[NONE]:
        scored = {name: value for name in providers if (value := cells[name][family].accuracy) is not None}
        best[family] = tuple(name for name, value in scored.items() if value == max(scored.values()))
    return best


def _shuffled(judge: _Judge) -> dict[str, ShuffledArm]:
    """Gain over none of each provider with its own text and with another family's, on the tasks scored in all four."""
    table = judge.material.shuffled
    if table is None:
        return {}
    control = Outcomes.of(table)
    place = {task_id: index for index, task_id in enumerate(control.task_ids)}
    order = [place[task_id] for task_id in judge.outcomes.task_ids]
    floor = control.arm(NONE)[order]
    found = {}
    for provider in judge.material.table.providers:
        gain, other = judge.outcomes.arm(provider) - judge.none, control.arm(provider)[order] - floor
        scored = ~np.isnan(gain + other)
        with_working = _against_working(judge, provider, control.arm(provider)[order])
        found[provider] = ShuffledArm(
            gain=mean_or_none(gain[scored]),
            gain_shuffled=mean_or_none(other[scored]),
            n=int(scored.sum()),
            gain_working=with_working[0],
            gain_shuffled_working=with_working[1],
            n_working=with_working[2],
        )
    return found


def _against_working(judge: _Judge, provider: str, shuffled: Values) -> tuple[float | None, float | None, int]:
    """Gain over working memory alone with own and with shuffled text, and the number of tasks scored in all three."""
    if judge.alone is None:
        return None, None, 0
    own, other = judge.outcomes.arm(provider) - judge.alone.working, shuffled - judge.alone.working
    scored = ~np.isnan(own + other)
    return mean_or_none(own[scored]), mean_or_none(other[scored]), int(scored.sum())


def _loss_share_working(arm: ShuffledArm | None) -> float | None:
    if arm is None or arm.gain_working is None or arm.gain_shuffled_working is None or arm.gain_working <= 0:
        return None
    return 1 - arm.gain_shuffled_working / arm.gain_working


def _loss_share(arm: ShuffledArm | None) -> float | None:
    if arm is None or arm.gain is None or arm.gain_shuffled is None or arm.gain <= 0:
        return None
    return 1 - arm.gain_shuffled / arm.gain


def _comparisons(judge: _Judge, policies: Mapping[str, PolicyResult]) -> tuple[Comparison, ...]:
    against = [
        name for name, result in policies.items() if result.kind in ("baseline", "simple") and name in judge.choices
    ]
    if judge.best_single is not None and judge.best_single in policies:
        against.insert(0, judge.best_single)
    pairs = [(router, other) for router in ROUTERS if router in policies for other in against]
    differences = [judge.choices[router].values - judge.choices[other].values for router, other in pairs]
    tested = zip(pairs, judge.bootstrap.estimates(differences), judge.p_values(differences), strict=True)
    found = [
        Comparison(
            policy=router,
            against=other,
            delta=estimate.mean,
            ci_low=estimate.low,
            ci_high=estimate.high,
            n=estimate.n,
            p=p,
        )
        for (router, other), estimate, p in tested
        if estimate is not None
    ]
    return adjusted(found)


def adjusted(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Correct the p of a family of comparisons for their number, after Holm and after Benjamini and Hochberg."""
    tested = [one.p for one in comparisons if one.p is not None]
    strict, lenient = iter(holm(tested)), iter(benjamini_hochberg(tested))
    return tuple(
        one if one.p is None else one.model_copy(update={"p_holm": next(strict), "q": next(lenient)})
        for one in comparisons
    )


def _warnings(judge: _Judge, policies: Mapping[str, PolicyResult], recommended: str | None) -> tuple[str, ...]:
    found: list[str] = []
    titles = _titles(judge.material)
    for name, result in policies.items():
        arm, share = max(result.shares.items(), key=lambda item: item[1])
        if result.kind in ("simple", "router") and share > COLLAPSE:
            found.append(
                f"{name_of(name, titles)} sends {share:.0%} of the tasks to {name_of(arm, titles)}: it hardly chooses."
            )
    unscored = int(np.isnan(judge.outcomes.correct).sum())
    if unscored:
        found.append(
            f"{unscored} of {judge.outcomes.correct.size} task-arm pairs are unscored: neither right nor wrong."
        )
    if recommended is not None and recommended in policies:
        found += _without_margin(judge, policies, recommended)
    return tuple(found)


def _without_margin(judge: _Judge, policies: Mapping[str, PolicyResult], recommended: str) -> list[str]:
    """Say so where the recommended router has no margin over a rule that needs no training, or over one provider."""
    simple = {name: result for name, result in policies.items() if result.kind == "simple"}
    titles = _titles(judge.material)
    rivals = [name for name in (_best(simple), judge.best_single) if name is not None and name in policies]
    found = []
    for rival in dict.fromkeys(rivals):
        estimate = judge.bootstrap.difference(judge.choices[recommended].values, judge.choices[rival].values)
        if estimate is not None and estimate.low <= 0:
            names = name_of(recommended, titles), name_of(rival, titles)
            found.append(f"{names[0]} has no margin over {names[1]} that the 95% interval carries.")
    return found


def _notes(judge: _Judge, policies: Mapping[str, PolicyResult], recommended: str | None) -> tuple[str, ...]:
    material = judge.material
    notes = [
        f"Intervals: 95%, paired bootstrap over tasks, {material.resamples} resamples.",
        f"An arm's outcome on a task is the mean of its {material.repeats} repeats (another agent seed each).",
        "Begin decisions are replayed on the routing table, which is exact for Begin alone.",
        "Every arm but none has working memory. in_only has that alone; it is not among the oracle's arms.",
        "best_single was chosen on the exploration table, best_single_hindsight on this split.",
    ]
    if "random" in policies:
        notes.append(f"random is the mean of {policies['random'].seeds} policy seeds.")
    if ORACLE_CROSSFIT not in policies:
        notes.append("There is no cross-fitted oracle and no headroom against it: it needs two repeats or more.")
    if recommended is not None:
        notes.append("recommended was chosen on dev, so its dev accuracy is the best of several.")
    elif material.table.split != "dev":
        notes.append("recommended is chosen on dev: run `memroute evaluate` on dev first.")
    return tuple(notes)
