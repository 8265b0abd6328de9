"""Every config that is shipped loads, names providers that exist, and has something to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.bank import MemoryBank
from providers.distill.rules import RuleDistiller
from providers.embedder import Hashing
from providers.registry import BUILT_IN
from synth.config import ModelsConfig, RunConfig
from synth.load_config import load_config
from synth.models import Models
from synth.plan import plan
from synth.plugins import load_governor
from synth.runs import dump_config
from synth.workbench import providers_over

CONFIGS = sorted((Path(__file__).resolve().parent.parent / "configs").glob("*.yaml"))
STAGES = ("warmup", "explore", "score", "build", "train", "evaluate", "report")


def test_there_are_configs() -> None:
    assert "embedded.yaml" in {path.name for path in CONFIGS}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_config_loads_and_can_be_planned(path: Path) -> None:
    config = load_config(path)
    assert config.name == path.stem
    assert [stage.stage for stage in plan(config, STAGES).stages] == list(STAGES)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_resolved_config_loads_again_as_the_same(path: Path, tmp_path: Path) -> None:
    config = load_config(path, ["suite.explore=7", "train.max_minutes=null"])
    resolved = tmp_path / "config.yaml"
    resolved.write_text(dump_config(config), encoding="utf-8")
    assert load_config(resolved) == config
    assert config.suite.explore == 7


def test_embedded_all_has_every_built_in_memory_and_a_larger_budget() -> None:
    configs = {path.stem: load_config(path) for path in CONFIGS}
    governed = {"memguard", "verifier_only"}  # these two are compared with each other, on streams with label noise
    assert set(configs["embedded-all"].providers) == set(BUILT_IN) - governed
    minutes = {name: plan(configs[name], STAGES).minutes for name in ("embedded", "embedded-all")}
    assert minutes["embedded"] < minutes["embedded-all"] < 60


@pytest.mark.parametrize(
    ("name", "steps", "test"), [("gaia", 15, 165), ("webwalkerqa", 40, 170), ("xbench_ds", 40, 100)]
)
def test_the_benchmarks_have_the_papers_settings_and_a_bounded_cost(name: str, steps: int, test: int) -> None:
    config = load_config(next(path for path in CONFIGS if path.stem == name))
    assert (config.suite.explore, config.suite.test, config.agent.max_steps) == (53 + 120, test, 15)
    assert (config.evaluate.agent or config.agent).max_steps == steps
    assert len(config.providers) == 13
    planned = plan(config, ["explore", "evaluate"], "test")
    assert planned.tokens is not None
    assert planned.cost is not None
    assert planned.minutes is not None
    explored, evaluated = (stage.tokens / stage.episodes for stage in planned.stages)
    assert (evaluated > explored) == (steps > 15)
    assert "accept its conditions" in planned.missing[0]
    assert {name in " ".join(planned.missing) for name in ("The gaia data", "The taskcraft data")} == {True}
    assert len(planned.missing) == (2 if name == "gaia" else 3)
    assert "not asked of the endpoint" in planned.prices
    assert planned.uncounted == ("distiller", "scorer", "router")


def test_embedded_is_the_default() -> None:
    embedded = next(path for path in CONFIGS if path.stem == "embedded")
    assert load_config(embedded) == RunConfig(name="embedded")


@pytest.mark.parametrize("path", sorted((CONFIGS[0].parent / "accelerate").glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_reads_its_configs_without_an_unknown_key(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    config = load_config_from_file(str(path))
    assert (config.num_processes, config.mixed_precision) == (4, "no")
    assert {"ddp": "MULTI_GPU", "fsdp": "FSDP"}[path.stem] == config.distributed_type.value
    command = ["--config_file", str(path), "-m", "memroute", "train", "CONFIG", "--only", "lm"]
    launched, *_ = _validate_launch_command(launch_command_parser().parse_args(command))
    assert (launched.use_fsdp, launched.multi_gpu) == (path.stem == "fsdp", path.stem == "ddp")
    assert launched.training_script_args == ["train", "CONFIG", "--only", "lm"]


def test_embedded_long_has_more_tasks_of_the_same_kind_a_listwise_training_and_no_cap() -> None:
    configs = {path.stem: load_config(path) for path in CONFIGS}
    long, short = configs["embedded-long"], configs["embedded"]
    assert long.suite.explore >= 2000
    assert long.suite.options == {"explore": long.suite.explore}
    assert long.train.max_minutes is None
    for section in ("agent", "providers", "encoder", "explore", "rewards", "evaluate"):
        assert getattr(long, section) == getattr(short, section)
    own = {"max_minutes": None, "objective": "listwise"}
    assert long.train == short.train.model_copy(update=own)


def test_governance_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("name: x\ngovernance: off\n", encoding="utf-8")
    assert load_config(path).governance == "off"
    assert load_governor(load_config(path), Models(ModelsConfig())) is None
    full = load_config(path, ["governance=full", "descriptors=[trust, age]", "budget=384"])
    governor = load_governor(full, Models(ModelsConfig()))
    assert governor is not None
    assert (governor.mode, governor.described, governor.rules.budget) == ("full", ("trust", "age"), 384)
    with MemoryBank.open(tmp_path / "bank.sqlite", Hashing()) as bank:
        providers = providers_over(full, bank, RuleDistiller(), governor)
        assert all(provider.governor is governor for provider in providers.values())  # type: ignore[attr-defined]
        alone = load_config(path, ["providers=[awm, verifier_only]"])
        gated = load_config(path, ["governance=gated", "providers=[awm, memguard, verifier_only]"])
        behind = providers_over(gated, bank, RuleDistiller(), load_governor(gated, Models(ModelsConfig()))).values()
        modes = [(each.governor.rules.gate, each.governor.mode) for each in behind]  # type: ignore[attr-defined]
        assert modes == [(True, "full"), (True, "full"), (True, "admission")]
        awm, control = providers_over(
            alone, bank, RuleDistiller(), load_governor(alone, Models(ModelsConfig()))
        ).values()
        assert awm.governor is None  # type: ignore[attr-defined]
        assert control.governor.mode == "admission"  # type: ignore[attr-defined]
