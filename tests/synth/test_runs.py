"""A run's folder: its settings, its lock, its facts, and what happens when they are damaged."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from toy_world import toy_config

from providers.errors import BankError, ConfigError
from providers.types import Outcome, Preview, Retrieval, Trajectory
from synth.config import ExploreConfig, ModelsConfig, SuiteConfig, TrainConfig
from synth.facts import Episode, EpisodeKey, Facts, OfferFact, Probe, Served
from synth.models import Models
from synth.plugins import load_agent, load_suite
from synth.runs import Run

NO_MODELS = Models(ModelsConfig())
KEY = EpisodeKey(stage="explore", task_id="t", content_key="c", in_mode="query", repeat=0)


def test_a_run_records_its_settings_and_where_it_was_made(tmp_path: Path) -> None:
    config = toy_config(tmp_path, seed=3)
    with Run.open(config) as run:
        assert yaml.safe_load((run.root / "config.yaml").read_text())["seed"] == 3
        opened = json.loads((run.root / "manifest.json").read_text())["opened"]
        assert run.table("dev").parent.parent == run.root == tmp_path / "toy"
    assert len(opened) == 1
    assert opened[0]["seed"] == 3
    assert opened[0]["hardware"]["cpus"] >= 1
    assert "numpy" in opened[0]["packages"]
    with Run.open(config) as run:
        assert len(json.loads((run.root / "manifest.json").read_text())["opened"]) == 1


def test_other_settings_are_refused_with_the_keys_that_differ(tmp_path: Path) -> None:
    Run.open(toy_config(tmp_path)).close()
    with pytest.raises(ConfigError, match=r"seed was 0, is 1.*--name"):
        Run.open(toy_config(tmp_path, seed=1))
    with pytest.raises(ConfigError, match=r"explore\.repeats was 1, is 2"):
        Run.open(toy_config(tmp_path, explore=ExploreConfig(repeats=2)))
    suite = SuiteConfig(name="toy_world:ToySuite", warmup=61, explore=24)
    with pytest.raises(ConfigError, match=r"suite\.warmup was 60, is 61"):
        Run.open(toy_config(tmp_path, suite=suite))
    name = toy_config(tmp_path).providers[0]
    with pytest.raises(ConfigError, match=r"relevance_floors was \{\}, is "):
        Run.open(toy_config(tmp_path, relevance_floors={name: 0.5}))


def test_governance_binds_a_folder_and_one_of_an_older_version_that_names_none_stays_usable(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        path = run.root / "config.yaml"
    with pytest.raises(ConfigError, match="governance was 'off', is 'gated'"):
        Run.open(toy_config(tmp_path, governance="gated"))
    older = yaml.safe_load(path.read_text())
    del older["governance"], older["budget"]
    path.write_text(yaml.safe_dump(older))
    Run.open(toy_config(tmp_path)).close()


@pytest.mark.parametrize("user", ["agent", "distiller", "verifier", "scorer", "vision", "audio"])
@pytest.mark.parametrize("changed", [{"model": "b"}, {"temperature": 0.7}, {"options": {"top_p": 0.5}}])
def test_a_model_binds_a_folder_that_its_answers_went_into(
    tmp_path: Path, user: str, changed: dict[str, object]
) -> None:
    own = {"model": "a", "temperature": 0.0}
    Run.open(toy_config(tmp_path, models=ModelsConfig.model_validate({user: own}))).close()
    with pytest.raises(ConfigError, match=rf"models\.{user}\.{next(iter(changed))} was "):
        Run.open(toy_config(tmp_path, models=ModelsConfig.model_validate({user: own | changed})))
    elsewhere = own | {"base_url": "http://127.0.0.1:9/v1", "timeout": 5.0}
    Run.open(toy_config(tmp_path, models=ModelsConfig.model_validate({user: elsewhere}))).close()


@pytest.mark.parametrize("user", ["judge", "router"])
def test_a_model_that_is_asked_again_may_change(tmp_path: Path, user: str) -> None:
    for model in ("a", "b"):
        Run.open(toy_config(tmp_path, models=ModelsConfig.model_validate({user: {"model": model}}))).close()


def test_settings_that_only_later_stages_read_may_change_and_are_recorded(tmp_path: Path) -> None:
    Run.open(toy_config(tmp_path)).close()
    changed = toy_config(tmp_path, train=TrainConfig(lora_r=4), explore=ExploreConfig(waves=4, concurrency=2))
    with Run.open(changed) as run:
        assert yaml.safe_load((run.root / "config.yaml").read_text())["train"]["lora_r"] == 4


def test_one_process_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}\n"
        "from pathlib import Path\nfrom toy_world import toy_config\nfrom synth.runs import Run\n"
        f"Run.open(toy_config(Path({str(tmp_path)!r})))\n"
    )
    with Run.open(config):
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert child.returncode != 0
        assert "is in use by another process (pid " in child.stderr
        with pytest.raises(ConfigError, match="another process"):
            Run.open(config)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("damage", ["torn", "garbage"])
def test_a_damaged_database_is_named_with_the_mend(tmp_path: Path, damage: str) -> None:
    config = toy_config(tmp_path)
    with Run.open(config) as run:
        for number in range(200):
            run.facts.add_offer(
                "s", OfferFact(task_id=str(number), provider="p", status="x", reason="y", record_ids=())
            )
        path = run.database
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "torn" else b"not a database" * 500)
    with pytest.raises(BankError, match=r"run\.sqlite is damaged.*remove the run's folder"):
        Run.open(config)
    path.write_bytes(data)
    Run.open(config).close()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("mine")
    with pytest.raises(ConfigError, match=r"toy cannot be made, a file is in the way.*--runs-dir"):
        Run.open(toy_config(tmp_path))
    with pytest.raises(ConfigError, match=r"toy cannot be made, a file is in the way.*--runs-dir"):
        Run.open(toy_config(tmp_path / "toy"))
    assert (tmp_path / "toy").read_text() == "mine"


@pytest.mark.parametrize("text", ["{{{", "[]", "{}"])
def test_a_damaged_manifest_is_named_and_a_new_one_is_written_without_it(tmp_path: Path, text: str) -> None:
    config = toy_config(tmp_path)
    Run.open(config).close()
    path = tmp_path / "toy" / "manifest.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json is not readable: remove it"):
        Run.open(config)
    path.unlink()
    Run.open(config).close()
    assert len(json.loads(path.read_text())["opened"]) == 1


def write_many(facts: Facts) -> None:
    for number in range(1000):
        facts.add_offer("s", OfferFact(task_id=str(number), provider="p" * 500, status="x", reason="y", record_ids=()))


def test_a_full_disk_is_named_and_what_was_written_stays(tmp_path: Path) -> None:
    facts = Facts(tmp_path / "run.sqlite")
    facts.add_episode(Episode(key=KEY, status="done"))
    facts.flush()
    facts._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(BankError, match=r"the disk is full.*free space and start again"):
        write_many(facts)
    facts.close()
    assert list(Facts(tmp_path / "run.sqlite").episodes("explore")) == [KEY]


def test_a_disk_that_fails_is_no_reason_to_remove_the_run(tmp_path: Path) -> None:
    facts = Facts(tmp_path / "run.sqlite")
    with (
        pytest.raises(BankError, match=r"run\.sqlite cannot be used \(disk I/O error\): check its disk"),
        facts._guard(),
    ):
        raise sqlite3.OperationalError("disk I/O error")
    facts.close()


def test_facts_come_back_as_they_were_written(tmp_path: Path) -> None:
    trajectory = Trajectory.make(task_id="t", question="q \u2028", agent="a", seed=1, answer="x")
    episode = Episode(key=KEY, status="done", outcome=Outcome(correct=True), trajectory=trajectory, steps=2)
    served = Served(retrieval=Retrieval(provider="p", text="é", item_ids=("i",)), origins=(("o", 0.5),))
    probe = Probe(task_id="t", wave=2, previews=(Preview(provider="p", text="é"),), served={"p": served})
    facts = Facts(tmp_path / "run.sqlite")
    facts.add_episode(Episode(key=KEY, status="failed", error="first", attempt=0))
    facts.add_episode(episode.model_copy(update={"attempt": 1}))
    facts.add_probe("explore", probe)
    facts.close()
    again = Facts(tmp_path / "run.sqlite")
    assert again.episodes("explore") == {KEY: episode.model_copy(update={"attempt": 1})}
    assert again.episodes("explore", ["other"]) == {}
    assert again.episodes("explore", bodies=False)[KEY].trajectory is None
    assert again.episodes("explore", bodies=False)[KEY].steps == 2
    assert again.probes("explore", ["t", "other"]) == {"t": probe}
    again.close()


def test_unknown_plugins_are_refused_with_what_exists() -> None:
    with pytest.raises(ConfigError, match=r"no task suite 'factbok', did you mean 'factbook'\?"):
        load_suite("factbok", 0, {})
    with pytest.raises(ConfigError, match="case_based"):
        load_agent("nobody", {}, NO_MODELS)
    with pytest.raises(ConfigError, match="cannot be imported"):
        load_agent("no_such_package.agents:Agent", {}, NO_MODELS)
    with pytest.raises(ConfigError, match="has no Missing"):
        load_agent("toy_world:Missing", {}, NO_MODELS)
    with pytest.raises(ConfigError, match="refused its options"):
        load_agent("toy_world:ToyAgent", {"speed": 3}, NO_MODELS)
