"""The report of a run: one HTML file that needs no network, prints, and can be read on a phone, in light and dark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation import words
from evaluation.report import charts
from evaluation.report.behaviour import cost_view, coverage_bands, failure_rows, online_view
from evaluation.report.page import Page, gather, headroom_marks
from evaluation.report.tables import write_csv
from evaluation.result import ROUTERS, Comparison, Evaluation
from evaluation.retrained import CHANGES, ROUTER_WORDS, UNCHANGED
from providers.files import write_atomically
from router.decisions import NONE

if TYPE_CHECKING:
    import jinja2

    from synth.runs import Run

HERE = Path(__file__).parent

REWARD_PARTS = (
    ("begin", "Begin, judged", "Retrievals that injected something:"),
    ("in_query", "In, working memory shown", "Steps where it was injected:"),
    ("in_no_op", "In, working memory held back", "Steps where there was something to inject:"),
    ("end", "End, by later reuse", "Stored trajectories:"),
)

AGAINST = 0.45
"""A judge's dimension that agrees less than this with correctness is warned about; 0.5 is chance."""

KINDS = (
    ("missed", "Router misses, another arm solves"),
    ("gained", "Router solves, best single does not"),
    ("lost", "Best single solves, router does not"),
    ("ceiling", "No arm solves"),
    ("solved", "Router solves"),
)


def write_report(run: Run) -> Path:
    """Write `report.html` from what stands in the run's folder; what a stage has not made yet is named in it.

    Every table is written as a CSV file too, in `evaluation/csv/<split>/`.
    """
    page = gather(run)
    for evaluation in (page.evaluation, page.test):
        if evaluation is not None:
            write_csv(evaluation, run.evaluation / "csv" / evaluation.split)
    write_atomically(run.report, render(page))
    return run.report


def render(page: Page) -> str:
    """The page as HTML. All text from tasks, memories and configs is escaped."""
    templates = environment()
    values: dict[str, Any] = {
        "page": page,
        "style": asset("style.css"),
        "script": asset("page.js"),
        "environment": _machine(page.manifest),
    }
    if page.evaluation is not None:
        values |= _evaluation(page, page.evaluation, templates)
    if page.rewards is not None:
        values |= _rewards(page.rewards, page.evaluation)
    if page.losses:
        values |= _losses(page)
    return templates.get_template("report.html.jinja").render(values)


def environment() -> jinja2.Environment:
    """Templates of this folder with the report's words and number formats."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": words.percent, "points": words.points, "number": words.number}
    environment.globals |= {
        "words": words.policy_words,
        "interval": words.interval,
        "straddles": words.straddles,
        "heat": charts.heat,
        "percent0": partial(words.percent, digits=0),
        "points0": partial(words.points, digits=0),
        "lost": words.lost,
        "minus": words.MINUS,
        "absent": words.ABSENT,
        "titles": words.GROUPS,
        "fate_names": fate_names,
        "short_count": charts.short_count,
        "transfer_words": words.transfer,
        "changes": CHANGES,
        "unchanged": UNCHANGED,
        "router_words": ROUTER_WORDS,
    }
    return environment


def asset(name: str) -> Any:
    """One of our own files, which goes into the page as it is."""
    from markupsafe import Markup

    return Markup((HERE / name).read_text(encoding="utf-8"))


def _evaluation(page: Page, evaluation: Evaluation, environment: jinja2.Environment) -> dict[str, Any]:
    findings = words.findings(evaluation, rivals=False)
    lead = findings[1] if evaluation.recommended is not None and len(findings) > 1 else (findings or [""])[0]
    routers = [name for name in ROUTERS if name in evaluation.policies]
    choosing = [
        (name, result)
        for kind, members in words.ordered(evaluation)
        for name, result in members
        if kind in ("simple", "router", "bound") or name == "random"
    ]
    series = charts.series_of([result.shares for _, result in choosing], evaluation.providers, NONE)
    gains = [gain for arm in evaluation.shuffled.values() for gain in (arm.gain, arm.gain_shuffled)]
    return {
        "lead": lead,
        "findings": [sentence for sentence in findings if sentence != lead],
        "headroom": headroom_marks(evaluation),
        "league": partial(_league, environment),
        "online": online_view(evaluation),
        "failure_rows": failure_rows(evaluation),
        "cost": cost_view(evaluation),
        "bands": coverage_bands(evaluation),
        "best_name": _name(evaluation.best_single, evaluation),
        "routers": routers,
        "rivals": _rivals(evaluation, routers),
        "arm_accuracy": _arm_accuracy(evaluation),
        "unique_counts": list(evaluation.unique_solves.values()),
        "unique_labels": [_short(arm, evaluation) for arm in evaluation.unique_solves],
        "most_bits": math.log2(max(len(evaluation.providers), 1)),
        "legend": _legend(series, evaluation),
        "shares": [(name, result, charts.stack(result.shares, series)) for name, result in choosing],
        "describe": partial(_describe, evaluation=evaluation),
        "shuffle_scale": charts.nice_scale(gains, around=0.0),
        "verdicts": _verdicts(page),
        "arm_names": [words.policy_words(arm, evaluation).name for arm in (NONE, *evaluation.providers)],
        "kinds": KINDS,
        "outcome_class": _outcome_class,
        "outcome_word": _outcome_word,
    }


def _league(environment: jinja2.Environment, evaluation: Evaluation) -> Any:
    """The table of all policies with its dot-and-whisker plot."""
    from markupsafe import Markup

    replayed = [result for result in evaluation.policies.values() if result.way == "replay"]
    spread = [value for result in replayed for value in (result.ci_low, result.ci_high)]
    best = _name(evaluation.best_single, evaluation)
    return Markup(
        environment.get_template("league.jinja").render(
            e=evaluation,
            groups=[group for group in words.ordered(evaluation) if group[0] != "online"],
            scale=charts.nice_scale(spread),
            best_column=f"vs {best}" if best else "vs best single",
        )
    )


def _name(policy: str | None, evaluation: Evaluation) -> str:
    return words.policy_words(policy, evaluation).name if policy else ""


def _short(arm: str, evaluation: Evaluation) -> str:
    """A label that fits under one bar."""
    name = "none" if arm == NONE else words.policy_words(arm, evaluation).name
    return name if len(name) <= 7 else f"{name[:6]}."


def _rivals(evaluation: Evaluation, routers: Sequence[str]) -> list[tuple[str, list[Comparison | None]]]:
    found = {(one.policy, one.against): one for one in evaluation.comparisons}
    names = dict.fromkeys(one.against for one in evaluation.comparisons)
    return [(rival, [found.get((router, rival)) for router in routers]) for rival in names]


def _arm_accuracy(evaluation: Evaluation) -> dict[str, float | None]:
    """Accuracy of every arm over all its scored tasks, from its families."""
    found: dict[str, float | None] = {}
    for arm, cells in evaluation.provider_by_family.items():
        scored = [(cell.accuracy, cell.n) for cell in cells.values() if cell.accuracy is not None]
        total = sum(n for _, n in scored)
        found[arm] = math.fsum(accuracy * n for accuracy, n in scored) / total if total else None
    return found


def _legend(series: Mapping[str, int], evaluation: Evaluation) -> list[tuple[str, int]]:
    named = [(words.policy_words(arm, evaluation).name, colour) for arm, colour in series.items()]
    own = [(name, colour) for name, colour in named if colour <= charts.SERIES]
    rest = len(named) - len(own)
    return own + ([(f"{rest} others", charts.SERIES + 1)] if rest else [])


def _describe(shares: Mapping[str, float], evaluation: Evaluation) -> str:
    used = sorted(((share, arm) for arm, share in shares.items() if share > 0), reverse=True)
    return ", ".join(f"{words.policy_words(arm, evaluation).name} {words.percent(share, 0)}" for share, arm in used)


def _verdicts(page: Page) -> dict[str, int]:
    counts = Counter(task.verdict for task in page.tasks)
    return {verdict: counts[verdict] for verdict in ("solved", "missed", "ceiling", "unscored")}


def _outcome_class(outcome: float | None) -> str:
    if outcome is None:
        return "gap"
    return "full" if outcome == 1 else "half" if outcome > 0 else "empty"


def _outcome_word(outcome: float | None) -> str:
    if outcome is None:
        return "unscored"
    return "yes" if outcome == 1 else "no" if outcome == 0 else f"{outcome:.0%}"


def _rewards(rewards: Mapping[str, Any], evaluation: Evaluation | None) -> dict[str, Any]:
    correct = rewards["correct_by_provider"]
    reuse = [sum(column) for column in zip(*rewards["reuse"]["by_provider"].values(), strict=True)]
    label = partial(_short, evaluation=evaluation) if evaluation else str
    return {
        "correct_counts": [round(100 * (value or 0.0)) for value in correct.values()],
        "correct_labels": [label(arm) for arm in correct],
        "reward_parts": REWARD_PARTS,
        "bin_labels": ["0", "", "", "", "", ".5", "", "", "", ".9+"],
        "reuse_counts": reuse or [0] * 6,
        "dimensions": [
            (title, _dimensions(rewards[key])) for key, title, _ in REWARD_PARTS if rewards[key]["dimensions"]
        ],
        "judge_warnings": _judge_warnings(rewards),
    }


@dataclass(frozen=True)
class DimensionRow:
    """One of the judge's dimensions in one phase."""

    name: str
    shares: list[float]
    """Of the scores 0 to 5."""
    mean: float
    agreement: float | None
    """With correctness: area under the ROC curve; None where all runs, or none, were correct."""


def _dimensions(part: Mapping[str, Any]) -> list[DimensionRow]:
    rows = []
    for name, counts in part["dimensions"].items():
        total = sum(counts)
        if total:
            mean = sum(score * count for score, count in enumerate(counts)) / total
            shares = [count / total for count in counts]
            rows.append(DimensionRow(_spaced(name), shares, mean, part.get("agreement", {}).get(name)))
    return rows


def _judge_warnings(rewards: Mapping[str, Any]) -> list[str]:
    """What a reader of the rewards must know: scores that never change, run against correctness, or are missing."""
    found: list[str] = []
    for key, title, _ in REWARD_PARTS:
        part = rewards[key]
        found += [f"{title}: {_spaced(name)} never changes, so it tells nothing." for name in part.get("constant", ())]
        found += [
            f"{title}: {_spaced(name)} runs against correctness ({area:.2f}; chance is 0.50)."
            for name, area in part.get("agreement", {}).items()
            if area is not None and area < AGAINST
        ]
    unscored = rewards.get("judge", {}).get("unscored", {})
    if unscored:
        reasons = ", ".join(f"{kind} {count:,}" for kind, count in unscored.items())
        found.append(f"Decisions without a verdict: {reasons}.")
    return found


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def fate_names(fates: Mapping[str, Mapping[str, int]]) -> list[str]:
    """All that became of some decision, what was kept first."""
    names = dict.fromkeys(fate for counts in fates.values() for fate in counts)
    return sorted(names, key=lambda fate: not fate.startswith("kept"))


def _losses(page: Page) -> dict[str, Any]:
    raw = [(point.step, point.loss) for point in page.losses]
    smoothed = charts.smooth([loss for _, loss in raw], window=max(1, len(raw) // 12))
    across = charts.nice_scale([step for step, _ in raw], around=0.0)
    up = charts.nice_scale([loss for _, loss in raw] + [point.loss for point in page.validation_losses], around=0.0)
    return {
        "loss_x": across,
        "loss_y": up,
        "loss_raw": charts.polyline(raw, across, up),
        "loss_smooth": charts.polyline(list(zip([step for step, _ in raw], smoothed, strict=True)), across, up),
        "training_words": _training_words(page.training),
    }


def _training_words(training: Mapping[str, Any]) -> str:
    parts = []
    if "validation_loss" in training:
        parts.append(f"Held-out loss {training['validation_loss']:.3f}")
    agreed = [
        f"{phase} {words.percent(training[f'agreement_{phase}'], 0)}"
        for phase in ("begin", "in", "end")
        if f"agreement_{phase}" in training
    ]
    if agreed:
        parts.append(f"decisions that agree with held-out labels: {', '.join(agreed)}")
    if training.get("stopped_early"):
        parts.append(f"stopped by the time cap after {training['steps']} steps")
    return "; ".join(parts)


def _machine(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not manifest:
        return []
    hardware = manifest.get("hardware", {})
    packages = manifest.get("packages", {})
    return [
        ("Opened", str(manifest.get("time", words.ABSENT))),
        ("Revision", str(manifest.get("git") or words.ABSENT)),
        ("Python", str(manifest.get("python", words.ABSENT))),
        ("Packages", ", ".join(f"{name} {version}" for name, version in packages.items())),
        (
            "Machine",
            f"{hardware.get('system', '')}, {hardware.get('cpus', '?')} CPUs, {hardware.get('memory_gb', '?')} GiB",
        ),
    ]
