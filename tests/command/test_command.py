"""The command line: quick help, exit codes, one-sentence errors, plans, and folders in the way."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import memroute
from providers.errors import BankError, ConfigError, EngineError, ModelError

ROOT = Path(__file__).resolve().parents[2]
VERBS = [verb.name for verb in memroute.VERBS]
HEAVY = ("pydantic", "numpy", "yaml", "torch", "faiss", "transformers", "sklearn", "openai")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(f"name: toy\nruns_dir: {tmp_path / 'runs'}\nproviders: [toys:First]\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def toy_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider `toys:First` from a package that is not ours."""
    package = tmp_path / "packages"
    package.mkdir()
    (package / "toys.py").write_text(
        "from memroute import ProviderCard\n"
        "class First:\n"
        "    CARD = ProviderCard(name='first', title='First', family='insight', stores='the first line',\n"
        "                        retrieves='by word', gate='success', top_k=2)\n"
        "    def probe(self, query): ...\n"
        "    def retrieve(self, query): ...\n"
        "    def store(self, trajectory, outcome): ...\n"
        "    def apply(self, effects, outcome): ...\n"
        "class Empty:\n"
        "    def __init__(self, seed): ...\n"
        "    def tasks(self, split, limit=None): return []\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(package))


def started(*arguments: str, cwd: Path = ROOT, path: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "memroute", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_help_is_quick_and_names_every_verb() -> None:
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        done = started("--help")
        seconds.append(time.monotonic() - began)
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in VERBS)
    assert min(seconds) < 1.0


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_teaches_and_imports_nothing_heavy(verb: str) -> None:
    script = (
        "import sys, memroute\n"
        f"try: memroute.main([{verb!r}, '--help'])\n"
        "except SystemExit as end: code = end.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    shown, _, last = done.stdout.rpartition("HEAVY ")
    assert last.strip() == "[] 0", done.stderr
    assert "example: memroute " + verb in shown
    assert "Result: " in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evalute"], 'there is no verb "evalute" (nearest: evaluate)'),
        (["run"], "required: CONFIG"),
        (["run", "{config}", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["evaluate", "{config}", "--split", "train"], "invalid choice: 'train'"),
        (["run", "nowhere.yaml"], "There is no config file nowhere.yaml"),
        (["run", "{config}", "--set", "suite.wramup=1"], "(nearest: suite.warmup)"),
        (["run", "{config}", "--set", "suite.dev=soon"], "suite.dev: input should be a valid integer"),
        (["run", "{config}", "--set", "suite.explore=0"], "suite.explore is 0"),
        (["run", "{config}", "--set", "suite.dev=0"], "suite.dev is 0"),
        (["evaluate", "{config}", "--split", "test", "--set", "suite.test=0"], "suite.test is 0"),
        (["run", "{config}", "--set", "evaluate.policies=[none, haeds]"], "'haeds' (nearest: heads)"),
        (["run", "{config}", "--set", "suite.dev=100000"], "lower suite.dev"),
        (["run", "{config}", "--set", "providers=[]"], "providers is empty"),
        (["run", "{config}", "--set", "providers=[toys:First, toys:First]"], "toys:First more than once"),
        (["run", "{config}", "--set", "providers=[expl]"], "did you mean 'expel'?"),
        (["run", "{config}", "--set", "providers=[toys:Second]"], "toys has no Second"),
        (["warmup", "{config}", "--set", "suite.name=toys:Empty"], "'toys:Empty' has 0 warmup tasks, not 300"),
        (["warmup", "{config}", "--set", "suite.name=factbok"], "did you mean 'factbook'"),
        (["warmup", "{config}", "--set", "suite.options.nonsense=1"], "nonsense"),
        (["warmup", "{config}", "--set", "agent.name=case_base"], "did you mean 'case_based'"),
        (["warmup", "{config}", "--set", "encoder.name=minilm2"], "There is no encoder 'minilm2'"),
        (["providers", "describe", "expl"], "did you mean 'expel'?"),
        (["config"], "required: ACTION"),
        (["providers", "check", "expel", "--property", "empty_stor"], "There is no property 'empty_stor'"),
        (["build", "{config}", "--format", "jsonl"], "--format is of the files that --export writes"),
        (["bank", "show", ".", "--limit", "-1"], "'-1' is no whole number from 0 up"),
        (["cache", "prune", "{config}", "--unused-days", "-1"], "'-1' is no number of days from 0 up"),
        (["cache", "prune", "{config}", "--unused-days", "nan"], "'nan' is no number of days from 0 up"),
        (["cache", "prune", "{config}", "--purpose", "juge"], "invalid choice: 'juge'"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(
    arguments: list[str], words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: Any = memroute.main([part.format(config=config) for part in arguments])
    except SystemExit as end:
        code = end.code
    message = capsys.readouterr().err
    assert code == 2
    assert words in message
    assert message.startswith("memroute: ")
    assert len(message.splitlines()) == 1
    assert not (config.parent / "runs").exists()


def test_no_verb_shows_help_and_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert memroute.main([]) == 2
    assert "warmup" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("the key is wrong."), 2, "the key is wrong."),
        (BankError("bank.sqlite is damaged."), 1, "bank.sqlite is damaged."),
        (ModelError("the endpoint is down.", retryable=True), 1, "the endpoint is down."),
        (ExceptionGroup("two", [EngineError("no base."), BankError("no bank.")]), 1, "no base."),
        (sqlite3.OperationalError("database or disk is full"), 1, "the disk is full"),
        (sqlite3.DatabaseError("file is not a database"), 1, "file is not a database"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), 1, "the disk is full (/data/x)"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), 1, "no permission to write or read (/data/x)"),
        (OSError(errno.EADDRINUSE, "address in use"), 1, "port is already in use"),
        (ModuleNotFoundError("No module named 'faiss'", name="faiss"), 1, 'package "faiss" is missing'),
        (KeyboardInterrupt(), 130, "the same command continues"),
    ],
)
def test_a_failure_is_one_sentence_and_its_exit_code(
    error: BaseException,
    code: int,
    words: str,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def failing(run: object) -> None:
        raise error

    monkeypatch.setattr("synth.warmup.warm_up", failing)
    assert memroute.main(["warmup", str(config)]) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("memroute: ")
    assert words in last


def test_a_fault_of_ours_keeps_its_traceback(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(run: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr("synth.warmup.warm_up", failing)
    with pytest.raises(KeyError):
        memroute.main(["warmup", str(config)])


def test_a_stage_gets_the_run_and_with_json_owns_standard_output(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    async def working(run: Any) -> None:
        seen.append(run.config)
        print("some progress")

    monkeypatch.setattr("synth.warmup.warm_up", working)
    arguments = ["warmup", str(config), "--set", "suite.warmup=3", "--seed", "5", "--name", "mine", "--json"]
    assert memroute.main(arguments) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["run"].endswith("mine")
    assert "some progress" in shown.err
    assert (seen[0].suite.warmup, seen[0].seed, seen[0].name) == (3, 5, "mine")


def test_run_does_all_stages_in_order(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    stages = tuple(
        memroute.Stage(stage.name, stage.does, lambda run, args, name=stage.name: done.append(name))
        for stage in memroute.STAGES
    )
    monkeypatch.setattr(memroute, "STAGES", stages)
    assert memroute.main(["run", str(config)]) == 0
    assert done == ["warmup", "explore", "score", "build", "train", "evaluate", "report"]


def test_a_dry_run_counts_and_leaves_no_folder(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(config), "--dry-run", "--json", "--set", "suite.explore=10", "--set", "suite.dev=4"]
    assert memroute.main(arguments) == 0
    plan = json.loads(capsys.readouterr().out)
    by_stage = {stage["stage"]: stage for stage in plan["stages"]}
    assert by_stage["explore"]["arms"] == 4
    assert by_stage["explore"]["episodes"] == 40
    assert by_stage["evaluate"]["episodes"] == 4 * (2 * 2 + 2 + 2)
    assert plan["minutes"] == pytest.approx(sum(stage["minutes"] for stage in plan["stages"]), abs=0.06)
    assert not (config.parent / "runs").exists()


def test_config_show_prints_what_loads_again(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert memroute.main(["config", "show", str(config), "--set", "suite.dev=9"]) == 0
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out, encoding="utf-8")
    assert memroute.load_config(again) == memroute.load_config(config, ["suite.dev=9"])


def test_config_schema_explains_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert memroute.main(["config", "schema"]) == 0
    shown = capsys.readouterr().out
    assert "suite.warmup (int, >= 0; default 300)" in shown
    assert "Attempts per warm-up task" in shown
    assert memroute.main(["config", "schema", "--json"]) == 0
    assert "warmup" in json.loads(capsys.readouterr().out)["properties"]


def test_providers_of_other_packages_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert memroute.main(["providers", "describe", "toys:First"]) == 0
    shown = capsys.readouterr().out
    assert "First (first), family insight" in shown
    assert "successful runs only" in shown
    assert memroute.main(["providers", "describe", "toys:First", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["providers"][0]["top_k"] == 2


def test_public_names_are_imported_when_asked_for() -> None:
    for name in memroute.__all__:
        assert getattr(memroute, name) is not None
    assert memroute.ProviderCard.__module__ == "providers.base"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        memroute.Nonsense  # noqa: B018


def test_purposes_are_those_of_the_config() -> None:
    from typing import get_args

    from synth.config import Purpose

    assert get_args(Purpose) == memroute.PURPOSES


def test_static_and_lazy_names_agree() -> None:
    import ast

    tree = ast.parse((ROOT / "memroute.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    static = {
        (node.module, alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    lazy = {(module, name) for module, names in memroute._EXPORTS.items() for name in names}
    assert static == lazy


@pytest.mark.parametrize("kind", ["package", "module"])
def test_a_users_folder_in_the_way_is_named(kind: str, tmp_path: Path) -> None:
    if kind == "package":
        intruder = tmp_path / "providers"
        intruder.mkdir()
        (intruder / "__init__.py").write_text("", encoding="utf-8")
    else:
        intruder = tmp_path / "train.py"
        intruder.write_text("", encoding="utf-8")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    done = started("config", "schema", cwd=tmp_path, path=path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"memroute: {intruder} hides memroute's own")
    assert len(done.stderr.splitlines()) == 1
    doctor = started("doctor", "--json", cwd=tmp_path, path=path)
    assert doctor.returncode == 1
    findings = json.loads(doctor.stdout)
    assert findings["ok"] is False
    assert str(intruder) in findings["checks"][0]["detail"]
    script = "from memroute import Task"
    outsider = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "ImportError" in outsider.stderr
    assert str(intruder) in outsider.stderr


def test_a_folder_that_is_only_near_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train").mkdir()
    monkeypatch.chdir(tmp_path)
    (finding,) = memroute._room_findings()
    assert finding["status"] == "warning"
    assert f'{tmp_path} has its own "train"' in finding["detail"]


def test_a_user_setting_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    memroute.main([])
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_cache_shows_what_is_kept_and_deletes_only_what_was_chosen(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lm.cache import Question, ResponseCache
    from lm.types import Completion

    cache = ResponseCache(tmp_path / "runs" / "toy" / "cache.sqlite")
    for text in ("a", "b"):
        question = Question("http://h/v1", "m", [{"role": "user", "content": text}], {})
        cache.put(question, Completion(text="yes", finish_reason="stop"), "judge", "new prompt")
    cache.close()
    assert memroute.main(["cache", "prune", str(config)]) == 2
    assert "say which answers to delete" in capsys.readouterr().err
    assert memroute.main(["cache", "prune", str(config), "--purpose", "agent"]) == 0
    assert memroute.main(["cache", "stats", str(config), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["kept"][0]["answers"] == 2
    assert memroute.main(["cache", "prune", str(config), "--all"]) == 0
    assert "2 answers deleted" in capsys.readouterr().out


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_what_a_stage_freed_goes_back_to_the_system() -> None:
    if not Path("/lib/x86_64-linux-gnu/libc.so.6").exists():
        pytest.skip("another C library")
    script = (
        "import memroute\n"
        "def resident():\n"
        "    return int(open('/proc/self/statm').read().split()[1]) // 256\n"
        "blocks = [bytearray(60_000) for _ in range(4000)]\n"
        "last = bytearray(60_000)\n"  # holds the top of the heap, so that freeing alone gives nothing back
        "full = resident()\n"
        "del blocks\n"
        "freed = resident()\n"
        "memroute._give_back_memory()\n"
        "print(full - freed, full - resident())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    by_freeing, by_giving_back = map(int, done.stdout.split())
    assert by_freeing < 50
    assert by_giving_back > 200
