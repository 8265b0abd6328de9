"""The questions suite: benchmarks in their real formats, splits, samples, and what is wrong with a file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from providers.errors import ConfigError, SuiteError
from providers.types import Split, Task
from synth.config import ModelsConfig
from synth.models import Models
from synth.plugins import load_suite
from synth.tasks.base import DataMissing
from synth.tasks.questions.formats import unsealed
from synth.tasks.questions.rows import read_rows
from synth.tasks.questions.sources import Source, drawn, load
from synth.tasks.questions.suite import Questions, mixed

SAMPLES = Path(__file__).parent.parent / "samples"


def source(name: str, **more: Any) -> dict[str, Any]:
    return {"format": name, "data": str(SAMPLES / name), **more}


def suite(**splits: Any) -> Questions:
    """A suite scored without models."""
    return Questions(**{"scorer": "exact", **splits})


def by_question(tasks: list[Task], words: str) -> Task:
    return next(task for task in tasks if words in task.question)


def test_gaia_has_levels_attachments_and_the_official_rules() -> None:
    tasks = Questions(test=[source("gaia")]).tasks(Split.TEST)
    assert len(tasks) == 6
    assert {task.family for task in tasks} == {"gaia level 1", "gaia level 2", "gaia level 3"}
    boats = by_question(tasks, "boats")
    assert boats.attachments == ("boats.csv",)
    assert (boats.gold, boats.meta) == ("2", {"level": 1})
    assert boats.id == "gaia:00000000-0000-4000-8000-000000000003"
    easy = Questions(explore=[source("gaia", where={"level": [1]})]).tasks(Split.EXPLORE)
    assert len(easy) == 3
    assert all(task.meta == {"level": 1} for task in easy)


async def test_gaia_is_scored_by_its_rules_where_nothing_else_is_said() -> None:
    given = Questions(test=[source("gaia")])
    languages = by_question(given.tasks(Split.TEST), "languages")
    assert (await given.score(languages, "arabic,french")).correct is True
    assert (await given.score(languages, "French, Arabic")).correct is False
    assert (await given.score(languages, None)).correct is False


async def test_gold_that_gaia_keeps_back_is_unscored(tmp_path: Path) -> None:
    row = {"task_id": "x", "Question": "Why?", "Level": "2", "Final answer": "?", "file_name": ""}
    (tmp_path / "metadata.jsonl").write_text(json.dumps(row), encoding="utf-8")
    given = Questions(test=[{"format": "gaia", "data": str(tmp_path)}])
    (task,) = given.tasks(Split.TEST)
    assert task.gold is None
    assert (await given.score(task, "because")).correct is None


def test_webwalkerqa_reads_both_spellings_of_its_keys() -> None:
    tasks = suite(test=[source("webwalkerqa")]).tasks(Split.TEST)
    assert len(tasks) == 4
    hard = by_question(tasks, "Mediterranean")
    assert hard.gold == "Libya"
    assert hard.family == "webwalkerqa multi_source hard"
    assert hard.meta["language"] == "en"
    assert hard.meta["root_url"] == "https://example.org/niger"
    chinese = suite(test=[source("webwalkerqa", where={"language": ["zh"]})]).tasks(Split.TEST)
    assert [task.gold for task in chinese] == ["恩贾梅纳"]


def test_webwalkerqas_sample_is_pythons_draw_with_seed_42(tmp_path: Path) -> None:
    rows = [
        {"question": f"Question {n}?", "answer": f"{n}", "root_url": "", "info": {"hop": "single_source"}}
        for n in range(680)
    ]
    (tmp_path / "main.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = Source(format="webwalkerqa", data=str(tmp_path), sample=170)
    _, questions = load(given)
    random.seed(42)
    expected = [row["question"] for row in random.sample(rows, 170)]
    assert [one.question for one in drawn(given, questions, set())] == expected


def test_xbench_is_decrypted_in_memory_alone(tmp_path: Path) -> None:
    given = suite(test=[source("xbench_ds")])
    tasks = given.tasks(Split.TEST)
    assert {task.gold for task in tasks} == {"乌兰巴托", "6", "西非法郎"}
    assert by_question(tasks, "蒙古").question == "蒙古国的首都是哪座城市？"
    assert all(task.meta == {"sealed": True} for task in tasks)
    assert given.sealed
    assert "乌兰巴托" not in (SAMPLES / "xbench_ds" / "DeepSearch-2505.csv").read_text(encoding="utf-8")


def test_a_wrong_canary_is_an_error() -> None:
    row = read_rows(SAMPLES / "xbench_ds" / "DeepSearch-2505.csv")[0]
    assert unsealed(row["answer"], row["canary"], "row 1") == "乌兰巴托"
    for sealed, key in ((row["answer"], "another-key"), ("%%%", row["canary"])):
        with pytest.raises(SuiteError, match="row 1 cannot be decrypted"):
            unsealed(sealed, key, "row 1")


def test_taskcraft_reads_both_keys_of_questions_and_answers() -> None:
    tasks = suite(explore=[source("taskcraft")]).tasks(Split.EXPLORE)
    assert {task.gold for task in tasks} >= {"Niger", "Bamako", "Tena Kourou 749 m"}
    two = suite(explore=[source("taskcraft", where={"hops": [2]}, sample=2)]).tasks(Split.EXPLORE)
    assert [task.meta["hops"] for task in two] == [2, 2]


async def test_plain_json_lines_with_a_scorer_by_name() -> None:
    given = Questions(test=[source("jsonl")], explore=[source("jsonl", where={}, scorer={"name": "numeric"})][:0])
    tasks = given.tasks(Split.TEST)
    assert {task.id for task in tasks} >= {"jsonl:a"}
    senegal = by_question(tasks, "Senegal")
    assert (await given.score(senegal, "dakar")).correct is True
    numeric = Questions(test=[source("jsonl", scorer={"name": "numeric", "tolerance": 0.01})])
    area = by_question(numeric.tasks(Split.TEST), "area of Chad")
    assert (await numeric.score(area, "1,284,001")).correct is True


def test_splits_are_disjoint_unless_a_source_may_overlap() -> None:
    easy = source("gaia", where={"level": [1]})
    apart = Questions(explore=[easy], test=[source("gaia")])
    explored = {task.id for task in apart.tasks(Split.EXPLORE)}
    assert {task.meta["level"] for task in apart.tasks(Split.TEST)} == {2, 3}
    both = Questions(explore=[easy], test=[source("gaia", overlap=True)])
    assert explored < {task.id for task in both.tasks(Split.TEST)}


def test_a_later_split_draws_from_what_earlier_ones_left() -> None:
    two_hops = source("taskcraft", where={"hops": [2]})
    given = suite(explore=[{**two_hops, "sample": 10}], dev=[two_hops])
    explored, dev = (set(map(str, (task.id for task in given.tasks(split)))) for split in (Split.EXPLORE, Split.DEV))
    assert (len(explored), len(dev)) == (10, 1)
    assert not explored & dev
    with pytest.raises(SuiteError, match="has 1 questions left, not 3"):
        suite(explore=[{**two_hops, "sample": 10}], dev=[{**two_hops, "sample": 3}]).tasks(Split.DEV)


def test_every_prefix_keeps_the_mix_of_families_and_follows_the_seed() -> None:
    tasks = [
        Task(id=f"{family}{n}", question="?", suite="s", family=family, split=Split.TEST)
        for family, count in (("a", 30), ("b", 10))
        for n in range(count)
    ]
    order = mixed(list(tasks), "1")
    for end in range(4, 41, 4):
        assert abs(sum(task.family == "b" for task in order[:end]) - end / 4) <= 1
    assert mixed(list(tasks), "1") == order
    assert mixed(list(tasks), "2") != order


def test_more_tasks_than_there_are() -> None:
    with pytest.raises(SuiteError, match="has 6 test tasks, not 7"):
        Questions(test=[source("gaia")]).tasks(Split.TEST, 7)
    assert suite().tasks(Split.WARMUP, 0) == []


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("gaia", {"task_id": "a", "Question": "?", "Final answer": "1"}, 'no column "Level"'),
        ("gaia", {"task_id": "a", "Level": 1, "Final answer": "1"}, 'no column "Question"'),
        ("gaia", {"task_id": "a", "Question": "?", "Level": "one"}, "whole number"),
        ("gaia", {"task_id": "a", "Question": "?", "Level": 1, "file_name": "../../etc/passwd"}, "does not lie beside"),
        ("gaia", {"task_id": "a", "Question": "?", "Level": 1, "file_name": "gone.pdf"}, "gone.pdf of task"),
        ("webwalkerqa", {"question": "?", "answer": "1"}, 'no column "info"'),
        ("webwalkerqa", {"question": "?", "answer": None, "info": {}}, "text is needed"),
        ("xbench_ds", {"id": 1, "prompt": "x", "answer": "x"}, 'no column "canary"'),
        ("taskcraft", {"query": "?", "valid_hop": 2}, 'no column "golden_answer" or "answer"'),
        ("taskcraft", {"golden_answer": "x"}, 'no column "query" or "question"'),
        ("jsonl", {"question": "  ", "answer": "x"}, "text is needed"),
        ("jsonl", {"question": "?", "answer": "x", "attachments": ["/etc/passwd"]}, "attachments"),
    ],
)
def test_a_missing_or_odd_column_is_named(tmp_path: Path, name: str, row: dict[str, Any], said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(SuiteError, match=said) as error:
        suite(test=[{"format": name, "data": str(path)}]).tasks(Split.TEST)
    assert str(path) in str(error.value) or "gone.pdf" in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"question": "?"', "line 1 is no JSON"),
        ("a.jsonl", b"[1]", "no JSON object"),
        ("a.jsonl", b"", "holds no row"),
        ("a.jsonl", b"\xff\xfe{}", "not UTF-8"),
        ("a.csv", b'a,b\n"1', "no readable CSV"),
        ("a.parquet", b"PAR1", "no readable Parquet"),
        ("a.xlsx", b"", "is none of .jsonl"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SuiteError, match=said):
        read_rows(tmp_path / name)


def test_the_formats_of_files_give_the_same_rows(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"question": "a?", "answer": "1"}, {"question": "ü?", "answer": "2"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "a.csv").write_text("question,answer\na?,1\nü?,2\n", encoding="utf-8-sig")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert all(read_rows(tmp_path / f"a.{kind}") == rows for kind in ("jsonl", "json", "csv", "parquet"))


def test_data_that_are_not_here_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataMissing, match=r"HF_HUB_OFFLINE=0.*accept its conditions at https://huggingface.co/"):
        Questions(test=[{"format": "gaia"}]).tasks(Split.TEST)
    with pytest.raises(DataMissing, match="no file or folder"):
        suite(test=[{"format": "jsonl", "data": "/no/such/place"}]).tasks(Split.TEST)
    with pytest.raises(DataMissing, match="has none of"):
        suite(test=[{"format": "taskcraft", "data": str(tmp_path)}]).tasks(Split.TEST)


def test_what_the_options_get_wrong_is_named() -> None:
    with pytest.raises(ConfigError, match=r"test.0.format"):
        Questions(test=[{"format": "giai"}])
    with pytest.raises(ConfigError, match=r"explor: extra inputs"):
        Questions(explor=[])
    with pytest.raises(ConfigError, match=r"models\.scorer"):
        Questions(test=[source("taskcraft")], models=Models(ModelsConfig()))
    with pytest.raises(SuiteError, match=r"say nothing of 'levels' \(they say: level\)"):
        Questions(test=[source("gaia", where={"levels": [1]})]).tasks(Split.TEST)
    with pytest.raises(SuiteError, match="No question of"):
        Questions(test=[source("gaia", where={"level": [4]})]).tasks(Split.TEST)


def test_one_run_has_one_suite_and_another_run_another() -> None:
    one, other = (Models(ModelsConfig.model_validate({"scorer": {"model": "s"}})) for _ in range(2))
    options = {"test": [source("taskcraft")]}
    first = load_suite("questions", 0, options, one)
    assert load_suite("questions", 0, options, one) is first
    assert load_suite("questions", 0, options, other) is not first


def test_tools_are_there_inside_the_suite_alone() -> None:
    given = Questions(test=[source("gaia")])
    with pytest.raises(SuiteError, match="inside `async with`"):
        given.tools(given.tasks(Split.TEST)[0])


async def test_a_task_has_the_tools_that_its_files_need(tmp_path: Path) -> None:
    models = Models(ModelsConfig.model_validate({"vision": {"model": "v"}}))
    given = Questions(test=[source("gaia")], tools={"cache": str(tmp_path / "pages.sqlite")}, models=models)
    async with given:
        tasks = given.tasks(Split.TEST)
        named = {
            task.question[:12]: [tool.name for tool in given.tools(task)]
            for task in (by_question(tasks, word) for word in ("boats", "picture", "Mongolia"))
        }
        reader = next(tool for tool in given.tools(by_question(tasks, "boats")) if tool.name == "read_file")
        seen = await reader.call(file="boats.csv")
    assert list(named.values()) == [["open", "read_file"], ["open", "inspect_image"], ["open"]]
    assert "| Clara | red | 5 |" in seen.observation
    assert seen.lineage is not None
    assert seen.lineage.source == "file: boats.csv"
