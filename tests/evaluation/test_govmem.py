"""GovMem-Bench: the generator keeps its specification, hides the truth, and its figures are right."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import memroute
from evaluation.govmem.bench import OURS, POLICIES, RIVAL, TABLE_III, compare, trade_off
from evaluation.govmem.bundles import Bundle, Truth, make_bundles
from evaluation.govmem.scores import Judged, average_precision, by_dependency, differences, scores_of, utility
from evaluation.govmem.spec import Spec, load_spec
from providers.errors import ConfigError
from providers.governance.evidence import relation
from providers.governance.gate import Audit, Case, Decision
from providers.governance.policies import PUBLISHED


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


@pytest.fixture(scope="module")
def small(spec: Spec) -> Spec:
    return spec.model_copy(update={"bundles": 3})


@pytest.fixture(scope="module")
def bundle(small: Spec) -> Bundle:
    return make_bundles(small, 5)[0]


def judged(
    decision: str, valid: bool, score: float = 0.0, bundle: int = 0, name: str = "a", joined: str = "echo"
) -> Judged:
    audit = Audit(
        candidate=name,
        claim="c",
        environment="",
        policy="p",
        decision=Decision(decision),
        reasons=(),
        score=score,
        dependency=joined,
        observations=1,
        support=1,
    )
    return Judged(audit, Truth("k", valid, "c"), bundle)


def test_a_seed_gives_the_same_bundles_and_another_seed_others(small: Spec) -> None:
    first, again, other = (make_bundles(small, seed) for seed in (5, 5, 6))
    assert [b.candidates for b in first] == [b.candidates for b in again]
    assert [b.pool for b in first] == [b.pool for b in again]
    assert first[0].candidates != other[0].candidates


def test_a_bundle_without_noise_has_the_counts_of_the_specification(small: Spec) -> None:
    for made in make_bundles(small, 5, noise=0.0):
        kinds = Counter(truth.kind for truth in made.truths.values())
        assert kinds == {name: kind.count for name, kind in small.kinds.items()}
        for candidate in made.candidates:
            assert all(relation(candidate.claim, o.text) != "contradicts" for o in candidate.observations)


def test_clustering_noise_splits_and_merges_and_leaves_the_observations_as_they_are(small: Spec) -> None:
    clean, noisy = make_bundles(small, 5, noise=0.0), make_bundles(small, 5, noise=1.0)
    assert sum(len(b.candidates) for b in noisy) > sum(len(b.candidates) for b in clean)
    for one, other in zip(clean, noisy, strict=True):
        assert {o.id for o in one.pool} == {o.id for o in other.pool}
    strangers = [
        observation
        for made in noisy
        for candidate in made.candidates
        for observation in candidate.observations
        if relation(candidate.claim, observation.text) == "unrelated"
    ]
    assert strangers


def test_nothing_that_a_policy_sees_names_the_kind_or_the_truth(spec: Spec, bundle: Bundle) -> None:
    seen = " ".join([c.model_dump_json() for c in bundle.candidates] + [o.model_dump_json() for o in bundle.pool])
    for word in (*spec.kinds, "valid", "truth", "stale", "adversar", "correlated"):
        assert word not in seen
    ids = [candidate.id for candidate in bundle.candidates]
    assert len(set(ids)) == len(ids)
    assert all(len(id) == 16 for id in ids)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_reads_nothing_from_names(name: str, bundle: Bundle) -> None:
    """With other ids and in another order, everything is decided as before; the truth is in no case at all."""
    renamed = {o.id: o.model_copy(update={"id": f"other {o.id}"}) for o in bundle.pool}
    for candidate in bundle.candidates:
        own = tuple(renamed.get(o.id, o) for o in candidate.observations)[::-1]
        other = candidate.model_copy(update={"id": "x", "observations": own})
        check = bundle.checker(candidate)
        first = POLICIES[name](Case(candidate, bundle.pool, bundle.checker))
        again = POLICIES[name](Case(other, tuple(renamed.values())[::-1], lambda _, check=check: check))
        assert (again.decision, again.score) == (first.decision, pytest.approx(first.score))


def test_halves_of_one_claim_have_one_check(small: Spec) -> None:
    for made in make_bundles(small, 5, noise=1.0):
        results: dict[str, set[str]] = {}
        for candidate in made.candidates:
            results.setdefault(made.truths[candidate.id].claim, set()).add(made.checker(candidate))
        assert all(len(found) == 1 for found in results.values())


@pytest.mark.slow
def test_the_papers_policies_land_near_table_iii(spec: Spec) -> None:
    decided = compare(spec, spec.seeds, PUBLISHED)
    for name, (precision, recall, false_promotion, _) in TABLE_III.items():
        seeds = [scores_of(seed) for seed in decided[name]]
        for field, paper in (("precision", precision), ("recall", recall), ("false_promotion", false_promotion)):
            mean = sum(getattr(one, field) for one in seeds) / len(seeds)
            assert abs(mean - paper) <= 0.08, (name, field, mean)


def test_the_figures_of_a_few_decisions_worked_by_hand() -> None:
    decisions = [
        judged("promote", True, 3),
        judged("promote", True, 2),
        judged("promote", False, 1),
        judged("needs_review", True),
        judged("reject", True),
        judged("reject", False),
    ]
    scores = scores_of(decisions)
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.false_promotion == pytest.approx(1 / 3)
    assert scores.recall == pytest.approx(2 / 4)
    assert scores.actionable_recall == pytest.approx(3 / 4)
    assert scores.review == pytest.approx(1 / 6)


def test_nothing_promoted_is_neither_false_nor_of_use() -> None:
    scores = scores_of([judged("reject", True), judged("needs_review", False)])
    assert (scores.precision, scores.false_promotion, scores.recall) == (1.0, 0.0, 0.0)
    assert (scores.b_at_1, scores.b_at_3) == (0.2, 0.2)


def test_utility_looks_at_what_is_read_first_in_each_bundle() -> None:
    decisions = [
        judged("promote", True, 9, bundle=0),
        judged("promote", False, 1, bundle=0),
        judged("promote", False, 5, bundle=1),
        judged("promote", True, 1, bundle=1),
        judged("reject", True, 9, bundle=2),
        judged("promote", True, 1, bundle=3),
    ]
    assert utility(decisions, 1) == pytest.approx((1 + 0.2 + 0.2 + 1) / 4)
    assert utility(decisions, 3) == pytest.approx((0.2 + 0.2 + 0.2 + 1) / 4)


def test_average_precision_takes_equal_scores_as_one_step() -> None:
    ranked = [judged("reject", valid, score) for valid, score in ((True, 3), (False, 2), (True, 1))]
    assert average_precision(ranked) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert average_precision([judged("reject", valid, 1) for valid in (True, False)]) == pytest.approx(0.5)


def test_the_split_by_dependency() -> None:
    rows = by_dependency(
        [
            judged("promote", False),
            judged("needs_review", True),
            judged("reject", True, joined="independent"),
        ]
    )
    assert (rows["echo"].n, rows["echo"].promoted, rows["echo"].review) == (2, 1, 1)
    assert (rows["echo"].false_promotion, rows["echo"].actionable_recall) == (1.0, 1.0)
    assert (rows["independent"].false_promotion, rows["independent"].actionable_recall) == (None, 0.0)


def test_more_support_that_is_asked_for_promotes_less_without_a_check(small: Spec) -> None:
    curve = trade_off(small, small.seeds[:1])
    for name in (OURS, RIVAL):
        reviews = [scores.review for scores in curve[name].values()]
        assert reviews == sorted(reviews)
        assert reviews[0] < reviews[-1]
        assert curve[name]["2"] == scores_of(compare(small, small.seeds[:1], POLICIES)[name][0])


def test_differences_are_paired_by_seed() -> None:
    low, high = scores_of([judged("promote", True)]), scores_of([judged("promote", False), judged("reject", True)])
    mean, bottom, top = differences([low, low], [high, high])["recall"]
    assert (mean, bottom, top) == (1.0, 1.0, 1.0)


def test_the_command_prints_one_object_and_the_tables(
    small: Spec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("evaluation.govmem.bench.load_spec", lambda: small.model_copy(update={"noise_sweep": (0.0,)}))
    assert memroute.main(["bench", "govmem", "--seeds", "2", "--sweep", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["policies"]) == set(POLICIES)
    assert {"precision", "recall", "false_promotion", "review"} <= set(found["policies"]["govmem_verified"])
    assert set(found["auprc_by_noise"]) == {"0"}
    for name in ("raw_frequency", OURS):
        assert sum(row["n"] for row in found["by_dependency"][name].values()) == found["candidates"]
    assert memroute.main(["bench", "govmem", "--seeds", "1", "--markdown"]) == 0
    tables = capsys.readouterr().out
    assert all(f"| {name} |" in tables for name in POLICIES)


def test_more_seeds_than_are_frozen_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert memroute.main(["bench", "govmem", "--seeds", "11"]) == 2
    assert "1 to 10" in capsys.readouterr().err


def test_a_wrong_specification_is_named(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("version: 1\nseeds: [1]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"spec\.yaml"):
        load_spec(path)
    broken = spec.model_dump()
    broken["check"]["valid"]["passed"] = 0.5
    with pytest.raises(ValueError, match="instead of 1"):
        Spec.model_validate(broken)
