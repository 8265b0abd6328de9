"""The words of an evaluation: names of policies, numbers as text, and what was found in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluation.result import ROUTERS, Comparison, Evaluation, Kind, PolicyResult

MINUS = "−"
ABSENT = "–"

GROUPS: dict[Kind, str] = {
    "baseline": "No choice made",
    "single": "One provider always",
    "simple": "Simple routers",
    "router": "Trained routers",
    "ablation": "The router with one thing changed",
    "online": "Online alone",
    "bound": "Upper bounds",
}


@dataclass(frozen=True)
class PolicyWords:
    """How a policy is called, and what it does in one clause."""

    name: str
    does: str


POLICIES = {
    "none": PolicyWords("No memory", "the task agent alone"),
    "in_only": PolicyWords("Working memory alone", "no long-term memory"),
    "random": PolicyWords("Random", "any provider with something to show"),
    "overlap": PolicyWords("Word overlap", "preview sharing most words"),
    "cosine": PolicyWords("Cosine", "preview nearest in embedding"),
    "knn": PolicyWords("Nearest tasks", "what worked on similar tasks"),
    "prompt_route": PolicyWords("PromptRoute", "frozen model with a knowledge base"),
    "prompt_route_rules": PolicyWords("PromptRoute as rules", "the knowledge base alone"),
    "untrained": PolicyWords("Untrained LM", "base model before training"),
    "trained": PolicyWords("Trained LM", "LoRA-tuned on exploration"),
    "heads": PolicyWords("Heads", "small regressions per provider"),
    "average": PolicyWords("LM and heads", "their log-odds averaged"),
    "five": PolicyWords("Router, five providers", "its choice restricted to the paper's five"),
    "no_probe": PolicyWords("Router, no previews", "knows the providers, not what they hold"),
    "scores_shown": PolicyWords("Router, scores shown", "a score beside every preview"),
    "router": PolicyWords("Whole router", "Begin, In and End as trained"),
    "in_always": PolicyWords("In always", "working memory at every step"),
    "in_never": PolicyWords("In never", "no working memory"),
    "store_all": PolicyWords("Store all", "every open gate keeps every run"),
    "store_none": PolicyWords("Store none", "nothing new is kept"),
    "concat": PolicyWords("All-Concat", "every provider, one after the other"),
    "fuse": PolicyWords("All-Fuse", "every provider in one note"),
    "oracle_crossfit": PolicyWords("Oracle, cross-fitted", "best arm, chosen on other runs"),
    "oracle": PolicyWords("Oracle, plain", "best arm in hindsight, with luck"),
}


def name_of(policy: str, titles: Mapping[str, str]) -> str:
    """What a policy or arm is called; a single provider goes by its usual name."""
    return POLICIES[policy].name if policy in POLICIES else titles.get(policy, policy)


def policy_words(policy: str, evaluation: Evaluation) -> PolicyWords:
    """Words for a policy or arm of an evaluation."""
    if policy in POLICIES:
        return POLICIES[policy]
    best_on = [
        where
        for where, best in (
            ("exploration", evaluation.best_single),
            (evaluation.split, evaluation.best_single_hindsight),
        )
        if policy == best
    ]
    does = f"best on {' and '.join(best_on)}" if best_on else ""
    return PolicyWords(name_of(policy, evaluation.titles), does)


def ordered(evaluation: Evaluation) -> list[tuple[Kind, list[tuple[str, PolicyResult]]]]:
    """Policies by group; within a group singles by accuracy, all others in the order that they were asked."""
    groups = []
    for kind in GROUPS:
        members = [(name, result) for name, result in evaluation.policies.items() if result.kind == kind]
        if kind == "single":
            members.sort(key=lambda member: -(member[1].accuracy or 0.0))
        if kind == "bound":
            members.sort(key=lambda member: member[1].accuracy or 0.0)
        if members:
            groups.append((kind, members))
    return groups


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as a percentage."""
    return ABSENT if value is None else f"{signed_zero(100 * value, digits):.{digits}f}%".replace("-", MINUS)


def points(value: float | None, digits: int = 1) -> str:
    """A difference of fractions in percentage points, with its sign."""
    if value is None:
        return ABSENT
    rounded = signed_zero(100 * value, digits)
    return f"{rounded:+.{digits}f}".replace("-", MINUS) if rounded else f"{0:.{digits}f}"


def number(value: float | None, digits: int = 1) -> str:
    """A plain number with thousands separated."""
    return ABSENT if value is None else f"{signed_zero(value, digits):,.{digits}f}".replace("-", MINUS)


def signed_zero(value: float, digits: int) -> float:
    """Rounded, without a negative zero."""
    return round(value, digits) + 0.0


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """`low to high`, as percentages without the sign or as signed points."""
    if low is None or high is None:
        return ABSENT
    if signed:
        return f"{points(low)} to {points(high)}"
    return f"{percent(low)[:-1]} to {percent(high)[:-1]}"


def findings(evaluation: Evaluation, *, rivals: bool = True) -> list[str]:
    """What was found: the levels, the trained routers, recommended first (with `rivals` against random and untrained),
    and the control. A difference that its interval does not carry is said to be not settled."""
    sentences = (_levels(evaluation), *_routers(evaluation, rivals), *_legal(evaluation), _shuffle(evaluation))
    return [sentence for sentence in sentences if sentence]


def transfer(other: Evaluation, own: Evaluation) -> str:
    """What the router that was recommended with the run's own agent keeps of its margin with another one."""
    name = own.recommended
    result = other.policies.get(name) if name else None
    best = other.best_single
    if name is None or result is None or best is None or result.delta_vs_best_single is None:
        return ""
    spread = interval(result.delta_ci_low, result.delta_ci_high, signed=True)
    before = own.policies[name].delta_vs_best_single
    return (
        f"{POLICIES[name].name}: {points(result.delta_vs_best_single)} points against {name_of(best, other.titles)}"
        f" (95% interval {spread}); with the run's own agent {points(before)}."
    )


def _levels(evaluation: Evaluation) -> str:
    none = evaluation.policies.get("none")
    parts = []
    if none is not None:
        parts.append(f"No memory solves {percent(none.accuracy)} of {evaluation.n} {evaluation.split} tasks")
    if evaluation.best_single is not None:
        name = name_of(evaluation.best_single, evaluation.titles)
        parts.append(
            f"the best single provider, {name} (chosen on exploration), {percent(evaluation.best_single_accuracy)}"
        )
    if evaluation.oracle_crossfit is not None:
        parts.append(
            f"an oracle that picks per task {percent(evaluation.oracle_crossfit)} cross-fitted "
            f"({percent(evaluation.oracle)} with luck)"
        )
    elif evaluation.oracle is not None:
        parts.append(f"an oracle that picks per task {percent(evaluation.oracle)}, luck included")
    return "; ".join(parts) + "." if parts else ""


def _routers(evaluation: Evaluation, rivals: bool) -> list[str]:
    order = sorted((name for name in ROUTERS if name in evaluation.policies), key=lambda n: n != evaluation.recommended)
    return [part for name in order for part in (_level(name, evaluation), _rivals(name, evaluation) if rivals else "")]


def _level(name: str, evaluation: Evaluation) -> str:
    result = evaluation.policies[name]
    label = f"{POLICIES[name].name}, the recommended router," if name == evaluation.recommended else POLICIES[name].name
    text = f"{label} solves {percent(result.accuracy)}"
    if result.delta_vs_best_single is None or evaluation.best_single is None:
        return f"{text}."
    best = name_of(evaluation.best_single, evaluation.titles)
    spread = interval(result.delta_ci_low, result.delta_ci_high, signed=True)
    unsettled = ", so not settled" if straddles(result.delta_ci_low, result.delta_ci_high) else ""
    return f"{text}: {points(result.delta_vs_best_single)} points against {best} (95% interval {spread}{unsettled})."


def _rivals(name: str, evaluation: Evaluation) -> str:
    result = evaluation.policies[name]
    parts = [_against(comparison) for comparison in _named(evaluation, name, ("random", "untrained"))]
    if result.headroom_over_best is not None and evaluation.best_single is not None:
        best = name_of(evaluation.best_single, evaluation.titles)
        parts.insert(0, f"{percent(result.headroom_over_best, 0)} of the headroom over {best}")
    return f"{POLICIES[name].name}: {', '.join(parts)}." if parts else ""


def _named(evaluation: Evaluation, policy: str, rivals: tuple[str, ...]) -> list[Comparison]:
    return [found for found in evaluation.comparisons if found.policy == policy and found.against in rivals]


def _against(comparison: Comparison) -> str:
    name = POLICIES[comparison.against].name
    spread = interval(comparison.ci_low, comparison.ci_high, signed=True)
    return f"{points(comparison.delta)} against {name[0].lower()}{name[1:]} ({spread})"


def _legal(evaluation: Evaluation) -> list[str]:
    """How many answers of models that answer in words were legal decisions by themselves, and what became of others."""
    found = []
    for name, result in evaluation.policies.items():
        if result.legal_share is None:
            continue
        rest = ""
        if result.constrained:
            rest = f"; the other {result.constrained} were asked for again under constraint, and all are legal"
        elif result.fallbacks:
            rest = f"; for the other {result.fallbacks} a rule decided"
        share = percent(result.legal_share)
        found.append(f"{POLICIES[name].name}: {share} of its answers are legal without constraint{rest}.")
    return found


def _shuffle(evaluation: Evaluation) -> str:
    if evaluation.shuffled_loss_share is None or evaluation.best_single is None:
        return ""
    name, share = name_of(evaluation.best_single, evaluation.titles), lost(evaluation.shuffled_loss_share)
    own = evaluation.shuffled_loss_share_working
    rest = "" if own is None else f" over no memory, {lost(own)} of that over working memory alone"
    return f"With retrieved texts shuffled across families {name} loses {share} of its gain{rest}."


def lost(share: float) -> str:
    """How much of a gain is lost; shuffled text can do worse than none."""
    return "all" if share >= 1 else percent(share, 0)


def straddles(low: float | None, high: float | None) -> bool:
    """Whether an interval of a difference contains 0."""
    return low is not None and high is not None and low <= 0 <= high
