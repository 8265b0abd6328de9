"""What the README tells users to write works as it stands there, from warm-up to report."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import memroute

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "docs" / "examples"
POLICIES = ("none", "random", "last_words", "overlap", "knn", "heads")


def test_the_readme_shows_the_example_as_it_is() -> None:
    example = "".join((EXAMPLES / name).read_text(encoding="utf-8") for name in ("my_world.py", "my_world.yaml"))
    for language in ("python", "yaml"):
        found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
        assert found is not None, f"the README has no {language} block"
        assert found[1].strip() in example


def test_a_suite_an_agent_and_a_memory_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(EXAMPLES / "my_world.yaml", tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    common = ["my_world.yaml", "--set", f"evaluate.policies=[{', '.join(POLICIES)}]"]
    for verb in ("warmup", "explore", "score", "build"):
        assert memroute.main([verb, *common]) == 0
    assert memroute.main(["train", *common, "--only", "heads"]) == 0
    capsys.readouterr()
    assert memroute.main(["evaluate", *common, "--json"]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    assert set(POLICIES) <= set(evaluation["policies"])
    assert evaluation["best_single"] == "last_words"
    assert evaluation["policies"]["last_words"]["accuracy"] > evaluation["policies"]["none"]["accuracy"] + 0.3
    assert evaluation["shuffled_loss_share"] > 0.5
    assert memroute.main(["report", *common]) == 0
    assert "Last words" in (tmp_path / "runs" / "my_world" / "report.html").read_text(encoding="utf-8")


def test_every_verb_and_script_that_the_readme_names_exists() -> None:
    verbs = {verb.name for verb in memroute.VERBS}
    commands = re.findall(r"^(?:.*PYTHONPATH=\. )?memroute (\w+)", README, re.MULTILINE)
    assert commands
    assert set(commands) <= verbs
    for script in re.findall(r"(?<![\w/])(?:\./)?(scripts/\w+)", README):
        assert (ROOT / script).is_file(), script


def test_the_readme_names_every_stage() -> None:
    assert re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE) == [s.name for s in memroute.STAGES]
