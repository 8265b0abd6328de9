"""Names of providers, and the three ways in which one can be wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from memory_toys import ScriptedDistiller, open_bank

from providers.base import MemoryProvider
from providers.errors import ConfigError
from providers.long_term.voyager import Voyager
from providers.registry import (
    BUILT_IN,
    GROUP,
    NotAProvider,
    ProviderImportFailed,
    ProviderNotFound,
    load_provider,
    provider_cards,
    provider_class,
    provider_paths,
)

FIVE = ("expel", "awm", "skillweaver", "voyager", "insight_graph")


def test_the_built_in_table_is_what_the_package_declares() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"][GROUP] == BUILT_IN


def test_cards_come_in_the_order_asked_for_and_bear_their_names() -> None:
    assert [card.name for card in provider_cards(FIVE)] == list(FIVE)
    assert [card.gate for card in provider_cards(FIVE)] == ["all", "success", "success", "all", "success"]
    assert [card.top_k for card in provider_cards(FIVE)] == [3, 1, 3, 1, 3]


def test_card_words_fit_a_compact_prompt() -> None:
    for card in provider_cards(tuple(BUILT_IN)):
        assert 0 < len(card.stores) <= 90
        assert 0 < len(card.retrieves) <= 90


@pytest.mark.parametrize("name", tuple(BUILT_IN))
def test_each_name_loads_a_provider(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = load_provider(name, bank.space(name), ScriptedDistiller())
        assert isinstance(provider, MemoryProvider)
        assert provider.card.name == name


def test_a_dotted_path_loads_without_being_registered() -> None:
    assert provider_class("providers.long_term.voyager:Voyager") is Voyager


def test_an_installed_package_can_add_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("outside", "providers.long_term.voyager:Voyager", GROUP)
    monkeypatch.setattr("providers.registry.entry_points", lambda group: [point] if group == GROUP else [])
    provider_paths.cache_clear()
    try:
        assert provider_class("outside") is Voyager
        assert set(provider_paths()) == {*BUILT_IN, "outside"}
    finally:
        provider_paths.cache_clear()


def test_a_misspelt_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(
        ProviderNotFound, match=r"no provider 'insightgraph'.*awm, .*expel.*did you mean 'insight_graph'"
    ):
        provider_class("insightgraph")


def test_a_name_like_no_other_is_answered_with_the_list() -> None:
    with pytest.raises(ProviderNotFound, match=r"There are .*awm.*or give a path"):
        provider_class("zzz")


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("no_such_package.memory:Thing", ProviderNotFound, "no module 'no_such_package'"),
        ("providers.long_term.voyager:Voyagerr", ProviderNotFound, "has no Voyagerr"),
        ("raising_module:Thing", ProviderImportFailed, "RuntimeError in raising_module: broken on purpose"),
        ("needing_module:Thing", ProviderImportFailed, "No module named 'something_not_installed'"),
        ("pathlib:Path", NotAProvider, "lacks CARD, probe, retrieve, store, apply"),
        ("providers.files:write_atomically", NotAProvider, "lacks CARD"),
    ],
)
def test_not_found_not_importable_and_no_provider_are_told_apart(
    path: str, error: type[ConfigError], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_module.py").write_text("raise RuntimeError('broken on purpose')")
    (tmp_path / "needing_module.py").write_text("import something_not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=message):
        provider_class(path)
