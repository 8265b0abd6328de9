"""The report and the terminal table: complete, self-contained, honest about gaps, safe with untrusted text."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from browser import ENTER, available, chromium
from made_run import add_rewards, add_training, made_run, serve_tables
from made_tables import PROVIDERS
from rich.console import Console

from evaluation import words
from evaluation.replay import evaluate
from evaluation.report.behaviour import Dot, _free
from evaluation.report.charts import heat, nice_scale, series_of, short_count, smooth, stack
from evaluation.report.compare import Compared, differing, warnings
from evaluation.report.details import MARK, _later_prompts
from evaluation.report.html import write_report
from evaluation.report.runs import report_runs
from evaluation.report.terminal import print_table
from evaluation.result import Comparison, Evaluation
from evaluation.retrained import (
    UNCHANGED,
    Ablated,
    Ablations,
    CurvePoint,
    LabelCount,
    LearningCurve,
    LeftOut,
    LeftOutTable,
)
from providers.errors import ConfigError
from providers.registry import provider_cards
from providers.types import Outcome, Preview, Trajectory
from router.codec import CodecName, codec
from router.context import InContext
from router.decisions import InDecision
from router.table import RoutingTable
from synth.facts import Episode, EpisodeKey, InRecord
from synth.runs import Run, dump_config

CHEAP = ("none", "random", *PROVIDERS, "overlap", "knn", "prompt_route_rules", "trained")
VOID = {"meta", "input", "br", "line", "rect", "circle", "polyline"}


class Structure(HTMLParser):
    """Checks that tags nest, and gathers text and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def parsed(html: str) -> Structure:
    structure = Structure()
    structure.feed(html)
    assert structure.open == []
    return structure


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with made_run(tmp_path, tasks=70, policies=CHEAP) as opened:
        serve_tables(opened, monkeypatch)
        yield opened


async def reported(run: Run) -> Structure:
    await evaluate(run)
    add_rewards(run)
    add_training(run)
    return parsed(write_report(run).read_text(encoding="utf-8"))


async def test_every_section_is_there(run: Run) -> None:
    text = " ".join((await reported(run)).text)
    for title in ("Policies", "Families", "Routing", "Controls", "Rewards", "Training", "Dataset", "Run", "Tasks"):
        assert title in text
    for words_ in (
        "Nearest tasks",
        "Oracle, cross-fitted",
        "InsightGraph",
        "extremum",
        "Judge dimensions",
        "0123456789abcdef",
    ):
        assert words_ in text


async def test_routers_that_were_trained_again_have_a_section(run: Run) -> None:
    before = " ".join((await reported(run)).text)
    assert "Learning curve" not in before
    low, high = {"ci_low": 0.3, "ci_high": 0.5}, {"delta_ci_low": -0.2, "delta_ci_high": -0.01}
    base = {"router": "heads", "way": "replay", "runs": 1, "accuracy": 0.4, "n": 70, **low}
    base |= {"top_two_share": 0.6, "entropy": 1.5}
    rows = (
        Ablated.model_validate({**base, "change": UNCHANGED, "delta": 0.0, "delta_ci_low": 0.0, "delta_ci_high": 0.0}),
        Ablated.model_validate({**base, "change": "no_probe", "delta": -0.1, "p": 0.01, "p_holm": 0.02, **high}),
    )
    labels = (LabelCount(change="in_no_threshold", phase="in", rows=1200, labels=1200, positive_share=0.25),)
    missing = {"five": "it needs a sixth provider"}
    Ablations(runs=("made",), split="dev", tasks=70, rows=rows, labels=labels, missing=missing).save(run.evaluation)
    gain = {"gain": 0.04, "gain_ci_low": -0.01, "gain_ci_high": 0.09, "n": 70, "best_share": 0.1}
    seen = {"trained_with": 0.5, "hidden": 0.4, "added": 0.44, "chosen": 0.21, "chosen_when_trained": 0.3}
    left = LeftOut(provider="insight_graph", router="lm", correct_where_chosen=0.66, **gain, **seen)
    LeftOutTable(run="made", split="dev", tasks=70, rows=(left,)).save(run.evaluation)
    point = {"router": "heads", "rows": 40, "accuracy": 0.4, "n": 70, **low, "delta_vs_best": -0.1, **high}
    points = tuple(
        CurvePoint.model_validate({**point, "share": share, "trained_on": tasks})
        for share, tasks in ((0.5, 105), (1, 210))
    )
    LearningCurve(
        run="made",
        split="dev",
        tasks=70,
        best_single="expel",
        best_single_accuracy=0.45,
        oracle_crossfit=0.6,
        points=points,
    ).save(run.evaluation)
    structure = parsed(write_report(run).read_text(encoding="utf-8"))
    text = " ".join(" ".join(structure.text).split())
    assert "#retrained" in structure.links
    for found in (
        "No previews",
        "−10.0 −20.0 to −1.0",
        "0.020",
        "1,200",
        "Five providers: not made, it needs a sixth provider.",
        "InsightGraph 50.0% 40.0% 44.0% +4.0 −1.0 to +9.0 21% 30% 66%",
        "Heads 105 40 40.0% 30.0 to 50.0 −10.0",
        "the cross-fitted oracle solves 60.0%",
    ):
        assert found in text, found


async def test_it_needs_no_network(run: Run) -> None:
    structure = await reported(run)
    html = run.report.read_text(encoding="utf-8")
    assert all(link.startswith("#") for link in structure.links)
    assert not re.search(r"https?://|@import|url\((?!#)", html.split("<pre>")[0])
    assert not {"link", "img", "iframe"} & set(structure.tags)


async def test_text_from_tasks_and_memories_is_escaped(run: Run) -> None:
    table = RoutingTable.load(run.table("dev"))
    evil = "</span><script>alert(1)</script>"
    first = table.rows[0].model_copy(
        update={"question": evil, "previews": tuple(Preview(provider=name, text=evil) for name in PROVIDERS)}
    )
    table.model_copy(update={"rows": (first, *table.rows[1:])}).save(run.table("dev"))
    structure = await reported(run)
    assert structure.tags.count("script") == 2
    assert "alert(1)" not in "".join(re.findall(r"<script.*?</script>", run.report.read_text(encoding="utf-8"), re.S))
    assert evil in " ".join(structure.text)


async def test_missing_stages_are_named_with_their_command(run: Run) -> None:
    run.table("explore").unlink()
    text = " ".join(parsed(write_report(run).read_text(encoding="utf-8")).text)
    for verb in ("explore", "score", "build", "train", "evaluate"):
        assert f"memroute {verb}" in text


async def test_a_policy_that_is_missing_is_said(run: Run) -> None:
    text = " ".join((await reported(run)).text)
    assert re.search(r"Not evaluated: Trained LM \(.*memroute train", text)


async def test_a_test_evaluation_stands_beside_dev(run: Run) -> None:
    text = " ".join((await reported(run)).text)
    assert "that nothing was tuned on" not in text
    dev = Evaluation.load(run.evaluation / "dev.json")
    dev.model_copy(update={"split": "test", "n": 71}).save(run.evaluation / "test.json")
    assert "71 tasks that nothing was tuned on" in " ".join(parsed(write_report(run).read_text(encoding="utf-8")).text)


async def test_every_task_can_be_opened_with_its_arms(run: Run) -> None:
    structure = await reported(run)
    assert structure.tags.count("details") >= 70
    html = run.report.read_text(encoding="utf-8")
    assert html.count('class="task"') == 70
    assert "chosen by" in html
    assert "(nothing to show)" in html


async def test_a_torn_last_line_of_metrics_is_passed_over(run: Run) -> None:
    await evaluate(run)
    add_training(run)
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write('{"stage": "train", "st')
    assert "Training" in " ".join(parsed(write_report(run).read_text(encoding="utf-8")).text)


async def test_numbers_on_the_page_are_those_of_the_evaluation(run: Run) -> None:
    structure = await reported(run)
    found = Evaluation.load(run.evaluation / "dev.json")
    text = " ".join(structure.text)
    for result in found.policies.values():
        assert words.percent(result.accuracy) in text
        assert words.interval(result.ci_low, result.ci_high) in text


async def test_unscored_figures_are_dashes(run: Run) -> None:
    table = RoutingTable.load(run.table("dev"))
    rows = tuple(
        row.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update={"correct": None}) if cell.arm.provider == "awm" else cell
                    for cell in row.cells
                )
            }
        )
        for row in table.rows
    )
    table.model_copy(update={"rows": rows}).save(run.table("dev"))
    structure = await reported(run)
    assert words.ABSENT in structure.text
    assert any("unscored" in text for text in structure.text)


@pytest.mark.parametrize("width", [80, 140])
async def test_terminal_table_fits_and_says_everything(run: Run, width: int) -> None:
    evaluation = await evaluate(run)
    out = StringIO()
    print_table(evaluation, Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in out.getvalue()
    row = next(line for line in lines if "Nearest tasks" in line)
    knn = evaluation.policies["knn"]
    assert words.percent(knn.accuracy)[:-1] in row
    assert words.points(knn.delta_vs_best_single) in row
    assert "replay" in row
    assert any(line.startswith("Not evaluated: Trained LM") for line in lines)
    assert any("an oracle that picks per task" in line for line in lines)


def test_numbers_as_text() -> None:
    assert words.percent(0.4267) == "42.7%"
    assert words.percent(-0.05, 0) == "−5%"
    assert words.percent(None) == "–"
    assert words.points(0.031) == "+3.1"
    assert words.points(-0.0004) == "0.0"
    assert words.interval(0.1, 0.2) == "10.0 to 20.0"
    assert words.interval(-0.1, 0.2, signed=True) == "−10.0 to +20.0"
    assert words.number(1234.56) == "1,234.6"


def test_nice_scale_covers_its_values_on_round_ticks() -> None:
    scale = nice_scale([0.083, 0.617], around=0.0)
    assert (scale.low, scale.step) == (0.0, 0.1)
    assert scale.high == pytest.approx(0.7)
    assert scale.at(0.35) == pytest.approx(50)
    assert nice_scale([0.4]).low < 0.4 < nice_scale([0.4]).high
    assert nice_scale([]).ticks


def test_counts_above_narrow_bars_are_short() -> None:
    assert [short_count(count) for count in (7, 999, 4208)] == ["7", "999", "4.2k"]


def test_heat_classes() -> None:
    assert [heat(0.0), heat(0.55), heat(1.0), heat(None)] == ["h0", "h5", "h9", "hx"]


def test_more_arms_than_colours_become_one_rest() -> None:
    names = [f"p{number}" for number in range(12)]
    shares = {"none": 0.05} | dict.fromkeys(names, 0.95 / 12)
    series = series_of([shares], names, "none")
    assert sorted(set(series.values())) == list(range(9))
    segments = stack(shares, series)
    assert len(segments) == 9
    assert segments[-1].label == "others"
    assert sum(segment.width for segment in segments) == pytest.approx(100, abs=0.01)


def test_smooth_is_a_trailing_mean() -> None:
    assert smooth([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]


def details_of(run: Run) -> dict[str, dict[str, dict[str, object]]]:
    html = run.report.read_text(encoding="utf-8")
    block = re.search(r'id="details">(.*?)</script>', html, re.S)
    assert block is not None
    found: dict[str, dict[str, dict[str, object]]] = json.loads(gzip.decompress(base64.b64decode(block[1])))
    return found


async def test_an_opened_task_shows_the_prompt_and_who_decided_what(run: Run) -> None:
    await reported(run)
    found = details_of(run)
    table = RoutingTable.load(run.table("dev"))
    assert list(found["tasks"]) == [row.task_id for row in table.rows]
    first = found["tasks"][table.rows[0].task_id]
    prompt, decisions = first["prompt"], first["decisions"]
    assert isinstance(prompt, str)
    assert isinstance(decisions, dict)
    assert table.rows[0].question[:60] in prompt
    assert prompt.count("▯") == len(PROVIDERS)
    assert set(decisions) >= {"overlap", "knn"}
    assert set(decisions.values()) <= set(PROVIDERS)
    explored = RoutingTable.load(run.table("explore"))
    assert list(found["explored"]) == [row.task_id for row in explored.rows]
    arms = found["explored"][explored.rows[0].task_id]["arms"]
    assert isinstance(arms, dict)
    assert arms["expel"][0] == explored.rows[0].correctness("expel")


async def test_what_the_judge_cannot_tell_is_said_and_every_fate_is_shown(run: Run) -> None:
    await reported(run)
    summary = json.loads(run.rewards.read_text(encoding="utf-8"))
    summary["begin"] |= {"constant": ["noise"], "agreement": {"reward": 0.7, "relevance": 0.31, "noise": None}}
    summary["judge"] = {"unscored": {"judge failed": 4}}
    run.rewards.write_text(json.dumps(summary), encoding="utf-8")
    card = json.loads((run.dataset / "card.json").read_text(encoding="utf-8"))
    card["decisions"] = {"begin": {"expel": {"judge reward 0": 3, "kept": 1234}, "awm": {"kept": 5}}, "in": {}}
    (run.dataset / "card.json").write_text(json.dumps(card), encoding="utf-8")
    text = " ".join(parsed(write_report(run).read_text(encoding="utf-8")).text)
    assert "Begin, judged: noise never changes" in text
    assert "Begin, judged: relevance runs against correctness (0.31; chance is 0.50)." in text
    assert "Decisions without a verdict: judge failed 4." in text
    assert "What became of every Begin decision" in text
    assert "What became of every In decision" not in text
    assert text.index("1,234") < text.index("judge reward 0")


def test_an_opened_task_shows_the_later_prompts_of_the_routers_arm() -> None:
    context = InContext(task_id="t", question="Which river?", step=2, summary="1 fact: the Nile", recent=())
    episode = Episode(
        key=EpisodeKey(stage="arms/dev", task_id="t", content_key="x", in_mode="query", repeat=0),
        status="done",
        outcome=Outcome(correct=False, source="gold"),
        trajectory=Trajectory.make(task_id="t", question="Which river?", agent="a", seed=0, steps=(), answer="Po"),
        in_records=(InRecord(context=context, decision=InDecision(action="query")),),
    )
    names: tuple[CodecName, ...] = ("marks", "json")
    for name in names:
        prompts = _later_prompts(episode, codec(name), provider_cards(PROVIDERS))
        assert list(prompts) == ["Decision prompt at In, before step 2", "Decision prompt at End"]
        assert "the Nile" in prompts["Decision prompt at In, before step 2"]
        assert "wrong" in prompts["Decision prompt at End"]
        assert (MARK in prompts["Decision prompt at End"]) == (name == "marks")


async def test_an_evaluation_with_another_agent_stands_beside_the_runs_own(run: Run) -> None:
    await evaluate(run)
    own = Evaluation.load(run.evaluation / "dev.json")
    policies = own.policies | {"heads": own.policies["knn"].model_copy(update={"kind": "router"})}
    own = own.model_copy(update={"policies": policies, "recommended": "heads"})
    own.save(run.evaluation / "dev.json")
    own.model_copy(update={"agent": "react", "n": 61}).save(run.evaluation / "dev-agent-0123abcd.json")
    text = " ".join(parsed(write_report(run).read_text(encoding="utf-8")).text)
    assert "Another agent: react" in text
    gained = words.points(own.policies["heads"].delta_vs_best_single)
    assert f"61 tasks. Heads: {gained} points against" in text
    assert f"with the run's own agent {gained}." in text


async def test_every_table_is_csv_with_the_same_numbers(run: Run) -> None:
    await reported(run)
    found = Evaluation.load(run.evaluation / "dev.json")
    folder = run.evaluation / "csv" / "dev"
    with (folder / "policies.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(found.policies)
    assert float(rows["knn"]["accuracy"]) == found.policies["knn"].accuracy
    assert rows["oracle_crossfit"]["regretted"] != ""
    assert {path.stem for path in folder.iterdir()} >= {"families", "arms", "oracle_of_k", "failures", "missing"}


@pytest.mark.parametrize(("tasks", "outcome"), [(1, None), (7, 0.0), (7, 1.0)])
async def test_one_task_none_solved_and_all_solved_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, outcome: float | None
) -> None:
    with made_run(tmp_path, tasks=tasks, unscored=0.0, policies=CHEAP) as opened:
        serve_tables(opened, monkeypatch)
        if outcome is not None:
            for name in ("dev", "dev_shuffled", "dev_alone"):
                table = RoutingTable.load(opened.table(name))
                rows = tuple(
                    row.model_copy(
                        update={"cells": tuple(cell.model_copy(update={"correct": outcome}) for cell in row.cells)}
                    )
                    for row in table.rows
                )
                table.model_copy(update={"rows": rows}).save(opened.table(name))
        text = " ".join((await reported(opened)).text)
        found = Evaluation.load(opened.evaluation / "dev.json")
    assert found.n == tasks
    if outcome is not None:
        assert found.policies["knn"].accuracy == outcome
        assert found.policies["knn"].headroom_over_best is None
        assert found.shuffled_loss_share is None
        assert found.arms["none"].seconds_per_solved == (None if outcome == 0.0 else found.arms["none"].seconds)
    assert "nan" not in text.lower().split()


async def test_an_evaluation_of_another_version_names_the_mend(run: Run) -> None:
    await evaluate(run)
    path = run.evaluation / "dev.json"
    old = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**old, "oracles": 1}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"another version.*memroute evaluate"):
        write_report(run)


async def test_runs_are_compared_with_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = []
    for name, tasks in (("one", 35), ("two", 70)):
        with made_run(tmp_path / name, tasks=tasks, policies=CHEAP) as opened:
            serve_tables(opened, monkeypatch)
            await evaluate(opened)
            configs.append(opened.config)
    written = report_runs([configs[0], configs[1].model_copy(update={"seed": 0})])
    assert written.comparison is not None
    text = " ".join(parsed(written.comparison.read_text(encoding="utf-8")).text)
    assert "different numbers of tasks (made: 35; made: 70)" in text
    assert "Nearest tasks" in text
    assert [row["tasks"] for one in written.reports for row in one.tables["coverage"] if row["arms"] == 0]
    (configs[1].runs_dir / "made" / "evaluation" / "dev.json").unlink()
    with pytest.raises(ConfigError, match="memroute evaluate"):
        report_runs(configs)


async def test_seeds_of_one_experiment_are_taken_together_on_every_split_that_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = []
    for seed, best in enumerate(("expel", "awm")):
        with made_run(tmp_path / f"seed{seed}", tasks=35, policies=CHEAP) as opened:
            serve_tables(opened, monkeypatch)
            await evaluate(opened)
            path = opened.evaluation / "dev.json"
            made = compared_made(Evaluation.load(path), best, (0.1 * seed, 0.1 * seed + 0.04))
            path.write_text(made.model_dump_json(), encoding="utf-8")
            (opened.evaluation / "test.json").write_text(
                made.model_copy(update={"split": "test"}).model_dump_json(), encoding="utf-8"
            )
            asked = opened.config.evaluate.model_copy(update={"policies": "all" if seed else CHEAP})
            configs.append(opened.config.model_copy(update={"seed": seed, "evaluate": asked}))
            (opened.root / "config.yaml").write_text(dump_config(configs[-1]), encoding="utf-8")
    written = report_runs(configs)
    assert written.comparison is not None
    text = " ".join(parsed(written.comparison.read_text(encoding="utf-8")).text)
    assert "Policies on dev" in text
    assert text.count("All runs together") == 2
    assert "Recommended router Best single +7.0 +5.6 to +8.4 200 +2.0 0.0 to +4.0 +12.0 +10.0 to +14.0" in " ".join(
        text.split()
    )
    (configs[1].runs_dir / "made" / "evaluation" / "test.json").unlink()
    changed = configs[1].evaluate.model_copy(update={"bootstrap": 123})
    written = report_runs([configs[0], configs[1].model_copy(update={"evaluate": changed})])
    assert written.comparison is not None
    text = " ".join(parsed(written.comparison.read_text(encoding="utf-8")).text)
    assert "All runs together" not in text
    assert "on test" not in text


def compared_made(evaluation: Evaluation, best: str, interval: tuple[float, float]) -> Evaluation:
    """With one comparison: heads, recommended, against the best single provider, over 100 tasks."""
    low, high = interval
    one = Comparison(policy="heads", against=best, delta=(low + high) / 2, ci_low=low, ci_high=high, n=100)
    return evaluation.model_copy(update={"best_single": best, "recommended": "heads", "comparisons": (one,)})


def test_runs_of_different_suites_are_no_comparison_of_policies() -> None:
    made = [Evaluation.model_construct(suite=s, split="dev", n=5, repeats=2, providers=("a",)) for s in ("one", "two")]
    found = warnings([Compared(one.suite, one, {}) for one in made])
    assert found == [
        "The runs have different suites (one: one; two: two), so their figures are not differences of policies."
    ]
    assert warnings([Compared("x", made[0], {}), Compared("y", made[0], {})]) == []


def test_settings_that_differ_are_dotted() -> None:
    bare = Evaluation.model_construct(policies={})
    settings = [{"seed": 0, "train": {"epochs": epochs}} for epochs in (1, 2)]
    runs = [Compared(name, bare, part) for name, part in zip("ab", settings, strict=True)]
    assert differing(runs) == [("train.epochs", ["1", "2"])]


def test_labels_are_placed_where_there_is_room() -> None:
    dots = [Dot("a", "router", 50.0, 50.0, "start", True)]
    assert not _free(dots, [], (55.0, 52.0), leftwards=False)
    assert _free(dots, [], (55.0, 60.0), leftwards=False)
    assert _free(dots, [], (90.0, 50.0), leftwards=False)
    assert not _free([], [(60.0, 71.0)], (55.0, 70.0), leftwards=False)
    assert _free([], [(60.0, 71.0)], (55.0, 70.0), leftwards=True)


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="chromium and chromedriver are not installed")
async def test_the_page_in_a_real_browser(run: Run, tmp_path: Path) -> None:
    """No console error; fits a phone; a task opens by keyboard and its details are unpacked; filters work."""
    await reported(run)
    with chromium() as browser:
        browser.open(run.report)
        assert browser.run("return document.querySelectorAll('#policies ~ table.league, table.league').length") >= 1
        browser.run("document.querySelector('details.task > summary').focus()")
        browser.press(ENTER)
        opened = "const until = Date.now() + 5000; let n = 0; while (!n && Date.now() < until) {"
        opened += " n = document.querySelectorAll('details.task[open] .detail details').length;"
        opened += " await new Promise(go => setTimeout(go, 50)); } return n;"
        assert browser.run(opened) >= 2
        assert "Which memory helps?" in browser.run(
            "return document.querySelectorAll('details.task[open] .detail pre')[1].textContent"
        )
        choose = "const f = document.getElementById('family'); f.value = 'trap';"
        browser.run(f"{choose} f.dispatchEvent(new Event('input'))")
        assert browser.run("return document.getElementById('count').textContent") == "10 of 70 tasks"
        for width in (390, 1200):
            browser.resize(width, 844)
            wide = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"the page is {wide} pixels too wide at {width}"
        assert browser.errors() == []
        browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
