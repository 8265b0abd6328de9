"""`memroute bank`: what it prints for people and for programs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from memory_toys import open_bank, run_of

from memroute import main
from providers.bank_verbs import seconds_of
from providers.errors import ConfigError
from providers.governance.lifecycle import Governor
from providers.governance.rule_verifier import RuleLooker
from providers.governance.verifier import Verdict, Verifier

SURE = Verdict(
    reward=0.9, confidence=0.9, uncertainty=0.1, label="verified_success", source_status="answered", verified_at=0.0
)
UNSURE = SURE.model_copy(update={"reward": 0.6, "label": "uncertain"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with open_bank(tmp_path) as bank:
        for namespace in ("default", "acme/ann"):
            space = bank.space("toy", namespace)
            for n, text in enumerate(["coal in Chad", "a river with password: hunter2!"]):
                space.add([space.new_record("note", run_of(f"t{n}"), n, text=text, payload={"n": n})])
        space.archive(space.records()[0].id, "useless")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["bank", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def found(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    code, out = told(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_stats_count_by_provider_and_namespace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = found(capsys, "stats", folder)
    assert (stats["records"], stats["encoder"], stats["dimension"]) == (4, "hashing-256", 256)
    ann, local = stats["spaces"]
    assert (ann["namespace"], ann["states"], local["states"]) == (
        "acme/ann",
        {"active": 1, "archived": 1},
        {"active": 2},
    )
    assert (local["kinds"], local["redacted_secrets"]) == ({"note": 2}, 1)
    code, text = told(capsys, "stats", folder / "bank.sqlite", "--namespace", "acme")
    assert code == 0
    assert "acme/ann" in text
    assert "1 archived" in text
    assert "default" not in text


def test_show_gives_records_by_what_is_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = found(capsys, "show", folder, "--namespace", "default", "--limit", "1")
    assert (shown["found"], len(shown["records"])) == (2, 1)
    assert found(capsys, "show", folder, "--state", "archived")["found"] == 1
    record_id = shown["records"][0]["id"]
    code, text = told(capsys, "show", folder, "--id", record_id, "--namespace", "default")
    assert code == 0
    assert record_id in text
    assert '"origins"' in text
    code, text = told(capsys, "show", folder, "--id", "nope")
    assert (code, "no record nope" in text) == (1, True)


def test_verify_ends_with_1_where_something_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = told(capsys, "verify", folder)
    assert (code, "all as they were stored" in text) == (0, True)
    with sqlite3.connect(folder / "bank.sqlite") as connection:
        connection.execute("UPDATE records SET body = replace(body, 'coal', 'gold')")
    code, text = told(capsys, "verify", folder)
    assert code == 1
    assert "damage" in text
    assert "it is not what was stored" in text


def test_export_and_import_make_the_same_bank(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "out" / "bank.jsonl"
    assert found(capsys, "export", folder, file)["records"] == 4
    assert found(capsys, "import", folder / "copy.sqlite", file)["records"] == 4
    again = found(capsys, "import", folder / "copy.sqlite", file)
    assert {name: count for name, count in again.items() if count} == {"known": 4}
    assert found(capsys, "stats", folder / "copy.sqlite")["records"] == 4
    assert told(capsys, "export", folder, file)[0] == 1


def test_what_memroute_notes_for_itself_is_no_memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_bank(folder) as bank:
        bank.space("memroute_stages").set_counter("warmup", 1)
    assert {space["provider"] for space in found(capsys, "stats", folder)["spaces"]} == {"toy"}
    assert told(capsys, "forget", folder, "--namespace", "default")[0] == 0
    with open_bank(folder) as bank:
        assert bank.space("memroute_stages").counter("warmup") == 1
        assert bank.space("toy").records() == []


def test_forget_says_what_went(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = found(capsys, "forget", folder, "--text", "CHAD")
    assert [space["records"] for space in gone["spaces"]] == [1, 1]
    assert found(capsys, "stats", folder)["records"] == 2
    code, text = told(capsys, "forget", folder, "--namespace", "acme")
    assert (code, "1 records are forgotten" in text) == (0, True)
    code, text = told(capsys, "forget", folder, "--task", "t9")
    assert (code, "nothing is removed" in text) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "nowhere"], "There is no bank nowhere"),
        (["forget", "."], "Say what to forget"),
        (["forget", ".", "--older-than", "soon"], "'soon' is no age"),
        (["forget", ".", "--namespace", "../x"], "is not a namespace"),
        (["forget", ".", "--task", "t1", "--cache", "nowhere"], "no encoder's cache nowhere"),
        (["import", ".", "nowhere.jsonl"], "There is no file nowhere.jsonl"),
        (["stats", ".", "--namespace", "../x"], "is not a namespace"),
        (["stats", ".", "--namespace", ""], "A namespace is needed"),
        (["show", ".", "--namespace", "../x"], "is not a namespace"),
        (["export", ".", "out.jsonl", "--namespace", "../x"], "is not a namespace"),
        (["stats", ".", "--provider", "tyo"], "keeps nothing of a provider 'tyo'; there are: toy"),
        (["show", ".", "--provider", "tyo"], "keeps nothing of a provider 'tyo'"),
        (["export", ".", "out.jsonl", "--provider", "tyo"], "keeps nothing of a provider 'tyo'"),
        (["forget", ".", "--text", "coal", "--provider", "tyo"], "keeps nothing of a provider 'tyo'"),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_sentence(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    code, text = told(capsys, *arguments)
    assert code == 2
    assert message in text
    assert len(text.splitlines()) == 1


def test_nothing_found_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "show", folder, "--kind", "poem") == (0, "No record fits what was given.\n")


@pytest.mark.parametrize(("key", "value"), [("dimension", "25G"), ("dimension", "257"), ("encoder", "hashing-257")])
def test_a_bank_that_misstates_its_encoder_is_damaged(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, value: str
) -> None:
    with sqlite3.connect(folder / "bank.sqlite") as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    for action in (["stats"], ["show"], ["export", folder / "out.jsonl"], ["forget", "--text", "coal"]):
        code, text = told(capsys, action[0], folder, *action[1:])
        assert (code, "it is damaged" in text) == (1, True)
    code, text = told(capsys, "verify", folder)
    assert (code, "what it says of its encoder is not what was written" in text) == (1, True)
    assert not (folder / "out.jsonl").exists()


def test_another_database_is_no_bank(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(folder / "run.sqlite") as connection:
        connection.execute("CREATE TABLE episodes (id TEXT)")
    code, text = told(capsys, "stats", folder / "run.sqlite")
    assert (code, "it is not a memroute bank" in text) == (1, True)


def test_ages_are_read_with_their_units() -> None:
    assert [seconds_of(age) for age in ("90s", "15m", "1.5h", "30d", "2w")] == [90, 900, 5400, 2592000, 1209600]
    with pytest.raises(ConfigError):
        seconds_of("-3d")


@pytest.fixture
def governed(tmp_path: Path) -> Path:
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        for task, content in (("t", "Open the page."), ("u", "Count the lines.")):
            payload = {"content": content, "evidence_span": f"seen: {content}"}
            record = space.new_record(
                "hint", run_of(task), 0, text=f"about {content}", payload=payload, signature=content
            )
            space.add([record])
            with space.transaction():
                Governor(Verifier(RuleLooker())).take_in(space, [record.id], run_of(task), UNSURE)
    return tmp_path


def test_review_lists_what_waits_with_its_evidence(governed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = found(capsys, "review", governed, "--limit", "1")
    assert (listed["found"], len(listed["waiting"])) == (2, 1)
    code, text = told(capsys, "review", governed)
    assert code == 0
    assert 'says  "Open the page."' in text
    assert 'seen  "seen: Open the page."' in text
    assert "not sure enough" in text


def test_a_record_that_was_used_since_waits_for_what_was_decided_on_it(
    governed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = found(capsys, "review", governed)["waiting"][0]
    with open_bank(governed) as bank:
        space = bank.space("toy")
        for solved in (True, False, False):
            space.update(space.existing(waiting["record"]["id"]))
            with space.transaction():
                Governor(Verifier(RuleLooker())).used(space, waiting["record"]["id"], solved)
    again = next(
        each for each in found(capsys, "review", governed)["waiting"] if each["record"]["id"] == waiting["record"]["id"]
    )
    assert again["reason"] == waiting["reason"]
    _, text = told(capsys, "history", governed, waiting["record"]["id"])
    assert [line.split()[2] for line in text.splitlines()[2:]] == ["added", "candidate", "used"]
    assert "3 times, 1 of them solved" in text
    assert len(found(capsys, "history", governed, waiting["record"]["id"])["lives"][0]["events"]) == 8


def test_a_decision_is_kept_with_its_note_and_holds_for_what_says_the_same(
    governed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (each["record"]["id"] for each in found(capsys, "review", governed)["waiting"])
    assert found(capsys, "review", governed, "--accept", first, "--note", "checked by hand")["state"] == "active"
    assert found(capsys, "review", governed, "--reject", second)["state"] == "rejected"
    assert found(capsys, "review", governed)["found"] == 0
    code, text = told(capsys, "history", governed, first)
    assert code == 0
    assert text.splitlines()[1] == '    says  "Open the page."'
    assert [line.split()[2] for line in text.splitlines()[2:]] == ["added", "candidate", "reviewed"]
    assert "accepted in review: checked by hand" in text
    with open_bank(governed) as bank:
        space = bank.space("toy")
        refused = space.existing(second)
        again = space.new_record("hint", run_of("v"), 0, text="x", payload={}, signature=refused.signature)
        with space.transaction():
            space.add([again])
            Governor(Verifier(RuleLooker())).take_in(space, [again.id], run_of("v"), SURE)
        assert space.existing(again.id).state == "rejected"


def test_an_accepted_record_can_be_edited(governed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = found(capsys, "review", governed)["waiting"][0]["record"]["id"]
    code, text = told(capsys, "review", governed, "--accept", first, "--text", "Open the newest page.")
    assert (code, "name it as the encoder" in text) == (2, True)
    edited = ("--accept", first, "--text", "Open the newest page.", "--encoder", "hashing")
    record = found(capsys, "review", governed, *edited)
    assert record["payload"]["content"] == "Open the newest page."
    assert "newest" in record["text"]
    assert told(capsys, "review", governed, "--reject", first, "--text", "x")[0] == 2
    assert told(capsys, "history", governed, "nobody")[0] == 1
