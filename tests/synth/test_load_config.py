"""Configs: overrides, and errors that name the key and the nearest right one."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ConfigError
from synth.config import RunConfig, Section
from synth.load_config import config_keys, load_config

EMBEDDED = Path(__file__).resolve().parents[2] / "configs" / "embedded.yaml"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text("name: toy\nsuite:\n  warmup: 5\n", encoding="utf-8")
    return path


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def test_overrides_are_yaml_and_the_later_one_wins(path: Path) -> None:
    config = load_config(
        path,
        [
            "suite.warmup=6",
            "suite.warmup=7",
            "providers=[awm, my.package:Mine]",
            "train.max_minutes=null",
            "train.learning_rate=1e-4",
            "suite.options.pages.depth=2",
            "models.router.model=tiny",
        ],
    )
    assert config.suite.warmup == 7
    assert config.providers == ("awm", "my.package:Mine")
    assert config.train.max_minutes is None
    assert config.train.learning_rate == 1e-4
    assert config.suite.options == {"pages": {"depth": 2}}
    assert config.models.router is not None
    assert config.models.router.model == "tiny"
    assert config.models.agent is None


def test_relevance_floors_are_off_by_default_and_named_by_provider(path: Path) -> None:
    assert load_config(path).relevance_floors == {}
    assert load_config(path, ["relevance_floors.awm=0.3"]).relevance_floors == {"awm": 0.3}
    assert "relevance_floors: input should be less than or equal to 1" in complaint(path, "relevance_floors.awm=1.5")
    assert "must name providers of this config (expel, awm" in complaint(path, "relevance_floors.awn=0.3")


def test_values_given_by_name_win_over_overrides(path: Path) -> None:
    config = load_config(path, ["seed=3", "name=other"], seed=4, name="mine", runs_dir=Path("elsewhere"))
    assert (config.seed, config.name, config.runs_dir) == (4, "mine", Path("elsewhere"))
    assert load_config(path, seed=0).seed == 0


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("suite.wramup=3", "suite.wramup: there is no such key (nearest: suite.warmup)"),
        ("waves=3", "waves: there is no such key (nearest: explore.waves)"),
        ("trian.epochs=2", "trian: there is no such key (nearest: train)"),
        ("suite.epocs=2", "nearest: train.epochs"),
        ("xyzzy=1", 'xyzzy: there is no such key ("memroute config schema" lists all)'),
        ("suite.warmup=many", "suite.warmup: input should be a valid integer"),
        ("suite.warmup=-1", "suite.warmup: input should be greater than or equal to 0, not -1"),
        ("providers=awm", "providers: must be a list such as [a, b], not 'awm'"),
        ("suite=3", "suite: must be a section"),
        ("suite.warmup.x=4", "suite.warmup is a value, not a section"),
        ("train.codec=xml", "train.codec: input should be 'marks' or 'json', not 'xml'"),
        ("explore.in_modes=[query, maybe]", "explore.in_modes: input should be 'query' or 'no_op', not 'maybe'"),
        ("suite.warmup=[", 'suite.warmup: "[" is not a YAML value'),
        ("suite.warmup", 'wants "section.key=value", not "suite.warmup"'),
        ("=3", 'wants "section.key=value", not "=3"'),
        ("suite..warmup=3", 'wants "section.key=value"'),
        ("name=../escape", 'name: "../escape" cannot name a run\'s folder'),
        ("name=''", "cannot name a run's folder"),
        ("explore.fail_on_error=-1", "explore.fail_on_error: input should be greater than or equal to 0"),
        ("explore.fail_on_error=.nan", "explore.fail_on_error: input should be greater than or equal to 0"),
        ("dataset.max_in=-5", "dataset.max_in: input should be greater than or equal to 0, not -5"),
        ("train.lora_r=0", "train.lora_r: input should be greater than or equal to 1, not 0"),
        ("train.batch_size=0", "train.batch_size: input should be greater than or equal to 1, not 0"),
        ("train.learning_rate=.nan", "train.learning_rate: input should be"),
        ("train.learning_rate=-1.0", "train.learning_rate: input should be greater than 0, not -1.0"),
        ("train.epochs=0", "train.epochs: input should be greater than 0, not 0"),
        ("train.max_minutes=-1", "train.max_minutes: input should be greater than 0, not -1"),
        ("evaluate.bootstrap=0", "evaluate.bootstrap: input should be greater than or equal to 1, not 0"),
    ],
)
def test_a_wrong_override_is_named_with_its_mend(path: Path, override: str, words: str) -> None:
    assert words in complaint(path, override)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("seed: 1\n", "name: is required"),
        ("name: a\nsuite: {warmup: 1\n", "not valid YAML, line 3"),
        ("- a\n- b\n", 'must hold "key: value" lines'),
        ("", 'must hold "key: value" lines'),
        ("name: a\nseed: 1\nseed: 2\n", 'line 3: the key "seed" is given twice'),
        ("name: a\nsuite:\n  dev: 1\n  dev: 2\n", 'line 4: the key "dev" is given twice'),
        ("name: a\nproviderz: []\n", "nearest: providers"),
        ("name: a\nseed: x\nsuite:\n  dev: y\n", "seed: input should be a valid integer"),
    ],
)
def test_a_wrong_file_is_named_with_its_mend(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(content, encoding="utf-8")
    message = complaint(path)
    assert words in message
    assert str(path) in message


def test_all_problems_are_told_at_once(path: Path) -> None:
    message = complaint(path, "seed=x", "suite.dev=y")
    assert "seed: " in message
    assert "suite.dev: " in message


def test_a_missing_file_is_named_with_the_nearest(path: Path) -> None:
    assert f"(nearest: {path})" in complaint(path.with_name("toi.yaml"))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"name: \xff\xfe")
    assert "not UTF-8" in complaint(path)


def test_a_file_that_may_not_be_read_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert complaint(path).startswith(f"{path} cannot be read (Permission denied)")


def test_the_keys_are_those_of_the_schema() -> None:
    keys = {key.name: key for key in config_keys()}
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            inner = {key.split(".")[1] for key in keys if key.startswith(f"{name}.")}
            assert inner == set(field.annotation.model_fields)
    assert keys["name"].default == "required"
    assert keys["suite.warmup"].type == "int, >= 0"
    assert keys["explore.positive"].type == "any | mean | all | confident"
    assert keys["models.judge"].type == "section or null"
    assert keys["models.judge.model"].default == "required"
    assert "min_exposures" not in keys
    assert keys["warmup.tries"].doc.startswith("Attempts per warm-up task")


def test_every_shown_default_can_be_given_back(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("name: toy\n", encoding="utf-8")
    absent = tuple(f"{key.name}." for key in config_keys() if key.type == "section or null")
    shown = [key for key in config_keys() if key.default != "required" and not key.name.startswith(absent)]
    assert load_config(path, [f"{key.name}={key.default}" for key in shown]) == RunConfig(name="toy")


def test_a_purpose_takes_from_the_default_endpoint_what_it_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "llm.yaml"
    path.write_text(
        "name: llm\nmodels:\n  default: {base_url: 'http://127.0.0.1:1/v1/', model: small, retries: 1}\n"
        "  judge: {model: large, prompt_price: 2}\n  router: null\n",
        encoding="utf-8",
    )
    models = load_config(path).models
    assert models.agent is not None
    assert models.judge is not None
    assert (models.agent.base_url, models.agent.model, models.agent.retries) == ("http://127.0.0.1:1/v1", "small", 1)
    assert (models.judge.model, models.judge.retries, models.judge.prompt_price) == ("large", 1, 2.0)
    assert (models.agent.prompt_price, models.router) == (None, None)
    assert load_config(path, ["models.default.model=other"]).models.agent == models.agent.model_copy(
        update={"model": "other"}
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("models.agent.key_env=sk-secret-1", "models.agent.key_env: must be the name of an environment variable"),
        ("models.agent.base_url=https://u:sk-secret-1@h/v1", "models.agent.base_url: must hold no key, user or query"),
        ("models.agent.base_url=https://h/v1?key=sk-secret-1", "models.agent.base_url: must hold no key"),
        ("models.agent.base_url=sk-secret-1", "models.agent.base_url: must start with http:// or https://"),
        ("models.agent.api_key=sk-secret-1", "models.agent.api_key: there is no such key"),
        ("models.agent=sk-secret-1", "models.agent: must be a section"),
        ("models.agnet.model=m", "models.agnet: there is no such key (nearest: models.agent)"),
    ],
)
def test_a_key_in_the_wrong_place_is_refused_and_not_shown(path: Path, override: str, words: str) -> None:
    message = complaint(path, override)
    assert words in message
    assert "sk-secret-1" not in message


def test_a_wrong_default_endpoint_is_reported_once(path: Path) -> None:
    assert complaint(path, "models.default.model=m", "models.default.timeout=soon").count("timeout") == 1


@given(
    st.text(alphabet=st.characters(exclude_characters="=", exclude_categories=["C"]), max_size=30), st.text(max_size=30)
)
def test_any_override_is_taken_or_explained(key: str, value: str) -> None:
    with contextlib.suppress(ConfigError):
        load_config(EMBEDDED, [f"{key}={value}"])
