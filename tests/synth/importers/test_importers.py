"""Finished runs of other agents: read from small files in their real formats, into memories and a routing table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memroute import main
from providers.bank import MemoryBank
from providers.embedder import Hashing
from providers.errors import ConfigError
from router.table import RoutingTable
from synth.config import RunConfig
from synth.importers.finished import Finished, UnreadableRun
from synth.importers.read import FORMS, read_runs
from synth.importers.take import Taken, take_in
from synth.runs import Run
from train.heads import train_heads

FINISHED = Path(__file__).parent.parent / "samples" / "finished"


def read(name: str, **more: Any) -> list[Finished]:
    return read_runs([FINISHED / name], **more)


def config(runs_dir: Path, *providers: str) -> RunConfig:
    given = {"name": "mine", "runs_dir": str(runs_dir), "encoder": {"name": "hashing"}}
    return RunConfig.model_validate({**given, "providers": providers or ("expel", "voyager")})


def test_chat_messages_become_steps_with_their_lineage() -> None:
    found, failed, talk = read("chat.jsonl")
    run = found.trajectory
    assert (run.task_id, run.question, run.answer) == ("ilmen", "How long is the Ilmen delta?", "41 km")
    assert [(step.index, step.tool, step.observation) for step in run.steps] == [
        (0, "search", "1. Ilmen: Rivers"),
        (1, "open", "# Ilmen\nDelta: 41 km"),
    ]
    assert run.steps[0].thought == "I look for it."
    assert run.steps[1].arguments == {"url": "https://example.org/ilmen"}
    lineage = run.steps[1].lineage
    assert lineage is not None
    assert (lineage.source, lineage.agent, lineage.environment, lineage.trust) == (
        "https://example.org/ilmen",
        "some-model",
        "openai",
        "tool",
    )
    assert (found.outcome.correct, found.outcome.source, found.provider) == (True, "user", "voyager")
    assert [one.text for one in run.injections] == ["Look at the page on rivers."]
    assert failed.trajectory.answer == "unknown"
    assert failed.trajectory.steps[0].arguments == {"written": '{"query": '}
    assert failed.trajectory.steps[0].observation == "nothing"
    assert [(step.tool, step.thought, step.observation) for step in talk.trajectory.steps] == [
        ("message", "Which book?", "The first one.")
    ]
    assert (talk.trajectory.answer, talk.outcome.correct) == ("Ann Smith", None)


def test_a_call_that_nothing_answers_is_an_error_of_its_step(tmp_path: Path) -> None:
    call = {"id": "a", "function": {"name": "search", "arguments": "{}"}}
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": messages}), encoding="utf-8")
    (run,) = read_runs([tmp_path / "a.jsonl"])
    assert run.trajectory.steps[0].error == "no answer to the call"
    assert run.trajectory.status == ("step 0: no answer to the call",)


def test_a_traj_file_of_swe_agent() -> None:
    (run,) = read("swe/boats__boats-17.traj")
    assert run.trajectory.task_id == "boats__boats-17"
    assert run.trajectory.question == "ISSUE:\nBoats have no length."
    assert [step.tool for step in run.trajectory.steps] == ["ls", "edit", "submit"]
    assert run.trajectory.steps[1].arguments == {"command": "edit 3:3\nreturn length\nend_of_edit"}
    assert run.trajectory.steps[0].observation == "README.md\nsetup.py\n"
    assert run.trajectory.answer == "diff --git a/boats.py b/boats.py\n+return length"
    assert run.trajectory.status == ("ended: submitted",)
    assert run.outcome.correct is None
    (judged,) = read("swe/boats__boats-17.traj", outcomes=FINISHED / "swe" / "results.json")
    assert judged.outcome.correct is True
    assert judged.trajectory.id == run.trajectory.id


def test_an_event_log_of_openhands() -> None:
    (run,) = read("openhands.jsonl")
    assert run.trajectory.task_id == "boats__boats-18"
    assert run.trajectory.question == "Fix the boats."
    tests, edit = run.trajectory.steps
    assert (tests.tool, tests.arguments, tests.thought) == ("run", {"command": "pytest"}, "First the tests.")
    assert (tests.observation, tests.error) == ("1 failed", "exit code 1: 1 failed")
    assert (edit.tool, edit.arguments["path"], edit.error) == ("edit", "/boats/boats.py", None)
    assert edit.lineage is not None
    assert (edit.lineage.source, edit.lineage.agent) == ("/boats/boats.py", "CodeActAgent")
    assert (run.trajectory.answer, run.outcome.correct) == ("The boats are fixed.", True)


def test_events_alone_and_in_pairs_are_the_same_run(tmp_path: Path) -> None:
    row = json.loads((FINISHED / "openhands.jsonl").read_text(encoding="utf-8"))
    events = row["history"]
    (tmp_path / "boats__boats-18.json").write_text(json.dumps(events), encoding="utf-8")
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    pairs = [[events[0], {}], [events[1], {}], *([events[n], events[n + 1]] for n in (2, 4)), [events[6], {}]]
    (tmp_path / "pairs.jsonl").write_text(json.dumps({**row, "history": pairs}), encoding="utf-8")
    (alone,), (lines,), (paired,) = (
        read_runs([tmp_path / name]) for name in ("boats__boats-18.json", "lines.jsonl", "pairs.jsonl")
    )
    (whole,) = read("openhands.jsonl")
    contents = [[step.content() for step in one.trajectory.steps] for one in (alone, lines, paired, whole)]
    assert contents.count(contents[0]) == 4
    assert paired.trajectory.id == whole.trajectory.id
    assert alone.outcome.correct is None


def test_a_folder_of_the_newer_openhands_events() -> None:
    (run,) = read("openhands-sdk")
    assert run.trajectory.question == "Paint the boats."
    look, view = run.trajectory.steps
    assert (look.tool, look.arguments, look.thought) == ("execute_bash", {"command": "ls"}, "I look.")
    assert look.observation == "boats.py"
    assert (view.error, view.observation) == ("There is no file /none.", "There is no file /none.")
    assert run.trajectory.answer == "All boats are red."


def test_a_folder_gives_all_runs_in_it_and_tells_what_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("chat.jsonl", "openhands-sdk", "openhands.jsonl", "swe/boats__boats-17.traj")
    found = read_runs([FINISHED / name for name in names])
    assert {one.trajectory.settings["imported"] for one in found} == set(FORMS) - {"auto"}
    assert capsys.readouterr().err == ""
    assert read_runs([FINISHED]) == found
    said = capsys.readouterr().err
    assert said.startswith(f"import: passed over: {FINISHED / 'swe' / 'results.json'} holds no run in a known format")
    with pytest.raises(UnreadableRun, match="known format"):
        read_runs([FINISHED / "swe" / "results.json"])


def test_a_broken_run_in_a_folder_is_an_error_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"messages": []}', encoding="utf-8")
    with pytest.raises(UnreadableRun, match="no question"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no finished run"),
        ("{", "line 1 is no JSON"),
        ("[1]", "run 1 is no JSON object"),
        ('{"a": 1}', "known format"),
        ('{"messages": []}', "no question"),
        ('{"messages": [{"role": "user", "content": "?"}]}', "neither a step nor an answer"),
        (
            '{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "x"}], "correct": "yes"}',
            "is 'yes'",
        ),
        (
            '{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [{}]}]}',
            "has no 'function'",
        ),
        ('{"trajectory": [{"action": "ls"}], "history": []}', "no question"),
        ('{"trajectory": [1], "history": [{"role": "user", "content": "?"}]}', "no swe-agent run"),
        ('{"history": [], "instance_id": "a"}', "no question"),
        ('{"history": [{"kind": "MessageEvent", "source": "user", "llm_message": 3}]}', "no openhands run"),
    ],
)
def test_what_is_no_run_is_named_by_file_and_row(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UnreadableRun, match=said) as error:
        read_runs([path])
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UnreadableRun, match="cannot be read"):
        read_runs([Path("/no/such/file.jsonl")])


async def test_runs_are_offered_to_every_memory_once(tmp_path: Path) -> None:
    runs = read("chat.jsonl") + read("openhands.jsonl")
    with Run.open(config(tmp_path, "awm", "voyager")) as run:
        first = await take_in(run, runs, table=False)
        again = await take_in(run, runs, table=False)
    assert (first.runs, first.correct, first.wrong, first.unscored) == (4, 2, 1, 1)
    assert first.stored["voyager"] == 4
    assert first.stored.get("awm", 0) + first.skipped.get("awm", 0) == 2  # its gate lets in what succeeded
    assert again == first
    with MemoryBank.open(tmp_path / "mine" / "bank.sqlite", Hashing()) as bank:
        records = bank.space("voyager").records()
    sources = {source for record in records for origin in record.origins for source in origin.sources}
    assert "https://example.org/ilmen" in sources
    tasks = {origin.task_id for record in records for origin in record.origins}
    assert tasks == {one.trajectory.task_id for one in runs}


def arms(path: Path, tasks: int = 16) -> Path:
    """Runs of tasks of two kinds: one provider helps in each, and its preview says so."""
    rows = []
    for number in range(tasks):
        kind, helps = (("rivers", "voyager"), ("people", "expel"))[number % 2]
        for provider in ("none", "expel", "voyager"):
            correct = provider == helps
            rows.append(
                {
                    "task_id": f"t{number}",
                    "family": kind,
                    "provider": provider,
                    "correct": correct,
                    "previews": {helps: f"how to find {kind}", "none": ""},
                    "messages": [
                        {"role": "user", "content": f"What of {kind} number {number}?"},
                        {"role": "assistant", "content": "so it is" if correct else "I do not know"},
                    ],
                }
            )
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


async def test_arms_become_a_routing_table_that_heads_are_trained_on(tmp_path: Path) -> None:
    runs = read_runs([arms(tmp_path / "arms.jsonl")])
    with Run.open(config(tmp_path)) as run:
        taken = await take_in(run, runs, table=True)
        assert await take_in(run, runs, table=True) == taken.model_copy(update={"tasks": 0})
        table = RoutingTable.load(run.table("explore"))
        train_heads(run)
        assert run.heads.exists()
    assert taken.tasks == 16
    row = table.rows[0]
    assert (row.correctness("voyager"), row.correctness("expel"), row.correctness("none")) == (1.0, 0.0, 0.0)
    assert [preview.text for preview in row.previews] == ["", "how to find rivers"]
    assert (row.family, len(row.embedding)) == ("rivers", len(table.rows[1].embedding))


async def test_a_table_needs_arms_and_a_run_that_did_not_explore(tmp_path: Path) -> None:
    with Run.open(config(tmp_path)) as run:
        with pytest.raises(ConfigError, match="give `provider`"):
            await take_in(run, read("openhands.jsonl"), table=True)
        run.facts.set_mark("explore", "done")
        with pytest.raises(ConfigError, match="explored already"):
            await take_in(run, read("openhands.jsonl"), table=False)


def test_the_command_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text("name: mine\nencoder: {name: hashing}\nproviders: [voyager]\n", encoding="utf-8")
    call = ["import", str(settings), str(FINISHED / "chat.jsonl"), "--runs-dir", str(tmp_path / "runs")]
    assert main([*call, "--json"]) == 0
    assert Taken.model_validate_json(capsys.readouterr().out).stored == {"voyager": 3}
    assert main(call) == 0
    assert capsys.readouterr().out == "3 runs: 1 correct, 1 wrong, 1 unscored\nvoyager: 3 stored, 0 skipped, 0 failed\n"
    expel = [*call, "--name", "other", "--set", "providers=[expel]"]
    assert main(expel) == 0
    assert "expel: 0 stored, 3 skipped, 0 failed (3 x nothing to learn from it)" in capsys.readouterr().out
    assert main([*call[:2], "/no/such/file", *call[3:]]) == 2


def test_what_was_imported_goes_from_bank_to_bank_and_stays_the_same(tmp_path: Path) -> None:
    settings, runs = tmp_path / "config.yaml", tmp_path / "runs"
    settings.write_text("name: mine\nencoder: {name: hashing}\nproviders: [voyager, awm]\n", encoding="utf-8")
    where = ["--runs-dir", str(runs)]
    files = [FINISHED / name for name in ("chat.jsonl", "swe/boats__boats-17.traj", "openhands.jsonl", "openhands-sdk")]
    assert main(["import", str(settings), *map(str, files), *where]) == 0
    assert main(["import", str(settings), str(FINISHED / "chat.jsonl"), *where, "--name", "other"]) == 0
    assert main(["bank", "export", str(runs / "mine"), str(tmp_path / "one.jsonl")]) == 0
    (runs / "other" / "bank.sqlite").unlink()
    assert main(["bank", "import", str(runs / "other"), str(tmp_path / "one.jsonl")]) == 0
    assert main(["bank", "export", str(runs / "other"), str(tmp_path / "two.jsonl")]) == 0
    one, two = (
        sorted((tmp_path / name).read_text(encoding="utf-8").splitlines()) for name in ("one.jsonl", "two.jsonl")
    )
    assert one == two
    text = "\n".join(one)
    assert all(source in text for source in ("https://example.org/ilmen", "/boats/boats.py", "edit 3:3", "ls"))


def test_the_formats_are_those_of_the_command() -> None:
    import memroute

    assert memroute.RUN_FORMATS == FORMS
