"""What a language model is shown: parts of descriptors, and what heads expect, in words."""

import numpy as np
import pytest
from test_codec import begin_context

from providers.errors import EngineError
from router.adapter import AdapterRecord
from router.codec import codec
from router.policies.heads import HeadsModel, Nearness
from router.sight import CHANCES, EDGES, Sight, in_words


class Expecting:
    """Heads that expect the same of every task."""

    def __init__(self, chances):
        self.model = HeadsModel(
            providers=("a",), nearness=Nearness(points=((1.0,),), weights=((0.0,),), means=(0.5,), gamma=1.0)
        )
        self.chances = chances

    def score(self, contexts):
        return np.asarray([self.chances] * len(contexts))


def record(heads=""):
    return AdapterRecord(
        base="b",
        codec="marks",
        providers=("a",),
        template_hash="t",
        dataset_hash="d",
        settings={"descriptors": ["trust"]},
        fingerprint="f",
        rows={},
        steps=1,
        stopped_early=False,
        heads=heads,
    )


def test_every_word_begins_at_its_edge():
    assert in_words([0.0, *EDGES, 1.0]) == (*CHANCES, CHANCES[-1])
    assert in_words([edge - 1e-9 for edge in EDGES]) == CHANCES[:-1]


@pytest.mark.parametrize("name", ["marks", "json"])
def test_a_forecast_stands_beside_the_preview_and_nothing_beside_an_empty_one(name):
    context = begin_context()
    shown = [preview.provider for preview in context.previews if preview.text]
    assert 0 < len(shown) < len(context.previews)
    plain = codec(name).begin(context)
    [seen] = Sight(heads=Expecting([0.7] * len(context.previews))).begin([context])
    told = codec(name).begin(seen)
    assert told.text.count("chance high)") == len(shown)
    assert told.text.replace(" (chance high)", "").replace("; chance high)", ")") == plain.text
    assert told.candidates == plain.candidates


def test_a_forecast_that_the_context_brings_stays():
    context = begin_context()
    brought = context.forecast(["fair"] * len(context.previews))
    assert Sight(heads=Expecting([0.7] * len(context.previews))).begin([brought]) == [brought]


def test_heads_are_loaded_only_where_the_adapter_was_shown_them_and_have_to_be_the_same():
    heads = Expecting([0.5])

    def unasked():
        raise AssertionError("nobody needs the heads")

    plain = Sight.of_record(record(), unasked)
    assert (plain.descriptors, plain.heads) == (("trust",), None)
    assert Sight.of_record(record(heads.model.identity), lambda: heads).heads is heads
    with pytest.raises(EngineError, match="other heads"):
        Sight.of_record(record("other"), lambda: heads)
    with pytest.raises(EngineError, match="not at hand"):
        Sight.of_record(record(heads.model.identity), None)
