"""Policies by name: everyone is there, cheap ones stay cheap, and what is missing is named with its mend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from router_toys import card

from providers.embedder import load_encoder
from providers.errors import ConfigError
from router.decisions import Arm
from router.policies.registry import (
    ABLATIONS,
    ONLINE_ONLY,
    POLICY_NAMES,
    MissingMaterial,
    PolicyMaterial,
    build_policies,
    build_policy,
)
from router.table import Cell, RoutingTable, TableRow

CARDS = (card("a"), card("b", "success"))


def toy_table() -> RoutingTable:
    encoder = load_encoder("hashing", {}, None)
    question = "Which country grows the most coffee?"
    row = TableRow(
        task_id="t",
        question=question,
        family="f",
        previews=(),
        embedding=tuple(encoder.encode([question])[0].tolist()),
        cells=(Cell(arm=Arm(provider="a"), correct=1.0), Cell(arm=Arm(provider="b"), correct=0.0)),
    )
    return RoutingTable(suite="toy", split="explore", providers=("a", "b"), rows=(row,))


def test_names_stand_in_the_documented_order() -> None:
    assert POLICY_NAMES[:5] == ("none", "random", "untrained", "trained", "heads")
    assert POLICY_NAMES[5:8] == ("overlap", "cosine", "knn")
    assert set(POLICY_NAMES) >= {*ONLINE_ONLY, *ABLATIONS}


def test_single_providers_go_by_their_own_names() -> None:
    assert build_policy("b", PolicyMaterial(cards=CARDS)).name == "b"


def test_a_policy_without_its_stage_is_reported_with_the_command_that_makes_it(tmp_path: Path) -> None:
    bare = PolicyMaterial(cards=CARDS, heads_path=tmp_path / "heads.json", adapter_path=tmp_path / "adapter")
    names = ("none", "trained", "heads", "knn", "cosine", "prompt_route_rules", "store_all", "a")
    built, missing = build_policies(names, bare)
    assert list(built) == ["none", "a"]
    assert list(missing) == ["trained", "heads", "knn", "cosine", "prompt_route_rules", "store_all"]
    for name in ("trained", "heads", "store_all"):
        assert "memroute train" in missing[name]
    for name in ("knn", "prompt_route_rules"):
        assert "memroute explore" in missing[name]
    with pytest.raises(MissingMaterial):
        build_policy("trained", bare)


def test_cheap_policies_are_built_from_a_table_and_an_encoder() -> None:
    material = PolicyMaterial(cards=CARDS, encoder=load_encoder("hashing", {}, None), explore_table=toy_table())
    names = ("none", "random", "overlap", "cosine", "knn", "prompt_route_rules", "concat", "fuse", "in_only")
    built, missing = build_policies(names, material)
    assert missing == {}
    assert [policy.name for policy in built.values()] == list(names)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"no policy 'best'.*prompt_route_rules.*a, b"):
        build_policies(["best"], PolicyMaterial(cards=CARDS))


def test_importing_policies_loads_nothing_heavy() -> None:
    script = (
        "import sys, router.policies.registry, router.session, router.codec;"
        "print(sorted({'torch','faiss','transformers','sklearn','openai','sentence_transformers'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
