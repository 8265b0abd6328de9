import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from providers.embedder import Hashing
from providers.types import Preview
from router.context import BeginContext
from router.features import PER_PROVIDER, SURFACE, Evidence, FeatureMap, nonempty, surface, word_overlap
from router.table import TableRow

TEXTS = st.text(alphabet="abc é漢1 .", max_size=40)


def row_of(question, texts, encoder):
    def rounded(vector):
        return tuple(round(float(value), 5) for value in vector)

    zeros = (0.0,) * encoder.dimension
    return TableRow(
        task_id="t",
        question=question,
        family="hidden",
        previews=tuple(Preview(provider=f"p{i}", text=text) for i, text in enumerate(texts)),
        embedding=rounded(encoder.encode([question])[0]),
        preview_embeddings=tuple(rounded(encoder.encode([text])[0]) if text else zeros for text in texts),
        cells=(),
    )


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4), st.booleans())
def test_features_are_the_same_bytes_in_training_and_inference(question, texts, given_embedding):
    encoder = Hashing()
    row = row_of(question, texts, encoder)
    context = BeginContext(
        task_id="t",
        question=question,
        embedding=encoder.encode([question])[0] if given_embedding else None,
        previews=row.previews,
        cards=(),
    )
    recorded, live = Evidence.of_row(row), Evidence.of_context(context, encoder)
    features = FeatureMap.fit([preview.provider for preview in row.previews], [recorded, live], 2)
    assert features([recorded]).tobytes() == features([live]).tobytes()
    assert nonempty([live]).tolist() == [[bool(text) for text in texts]]


def test_a_vector_holds_components_surface_then_every_providers_preview_features():
    encoder = Hashing()
    texts = ("area of norland", "")
    tasks = [
        Evidence.of_row(row_of(q, texts, encoder))
        for q in ("Norland area?", "who rules?", "area?", "coast of Norland?")
    ]
    features = FeatureMap.fit(["first", "second"], tasks, 2)
    vectors = features(tasks) * np.asarray(features.scale) + np.asarray(features.center)
    start = 2 + len(SURFACE)
    assert vectors.shape == (4, start + 2 * len(PER_PROVIDER))
    assert np.allclose(vectors[0, 2:start], surface(tasks[0].question))
    first = dict(zip(PER_PROVIDER, vectors[0, start : start + len(PER_PROVIDER)], strict=True))
    second = dict(zip(PER_PROVIDER, vectors[0, start + len(PER_PROVIDER) :], strict=True))
    assert np.isclose(first["overlap"], 1.0)
    assert np.isclose(first["lead"], 1.0)
    assert np.isclose(first["length"], len(texts[0]) / 200)
    assert np.isclose(second["lead"], -1.0)
    assert (first["empty"].round(9), second["empty"].round(9)) == (0.0, 1.0)
    assert np.isclose(first["cosine"], tasks[0].preview_embeddings[0] @ tasks[0].embedding)
    assert np.isclose(second["cosine"], 0.0)


@given(TEXTS, TEXTS)
def test_overlap_is_a_share_and_complete_for_a_preview_that_repeats_the_question(question, preview):
    assert 0.0 <= word_overlap(question, preview) <= 1.0
    assert word_overlap(question, question + " " + preview) in (0.0, 1.0)


def test_overlap_ignores_stop_words_and_case():
    assert word_overlap("What is the AREA of Norland?", "the area is what of") == 0.5
    assert word_overlap("what is it?", "anything") == 0.0


def test_surface_counts_names_figures_and_enumerations():
    found = dict(
        zip(SURFACE, surface("Which of Norland, Eastmark and Suthria had the most ports in 2019?"), strict=True)
    )
    assert found == {"capitals": 3, "digits": 1, "commas": 1, "words": 12, "asks": 1, "stop words": 6 / 12}
    assert surface("") == [0.0] * len(SURFACE)


def test_descriptors_are_features_only_of_the_parts_that_previews_say():
    encoder = Hashing()
    row = row_of("Norland area?", ("area of norland", ""), encoder)
    plain = Evidence.of_row(row)
    said = (row.previews[0].model_copy(update={"descriptor": "trust high; wins rarely"}), row.previews[1])
    told = Evidence.of_row(row.model_copy(update={"previews": said}))
    bare = FeatureMap.fit(["first", "second"], [plain, plain], 1)
    known = FeatureMap.fit(["first", "second"], [plain, told], 1)
    assert (bare.described, known.described) == ((), ("trust", "wins"))
    assert known([told]).shape[1] == bare([told]).shape[1] + 2 * 2
    raw = known([told]) * np.asarray(known.scale) + np.asarray(known.center)
    assert raw[0, -4:].tolist() == [1.0, 0.5, 0.0, 0.0]
    assert bare([told]).tobytes() == bare([plain]).tobytes()


def test_a_score_that_an_ablation_shows_is_a_feature_on_its_providers_own_scale():
    encoder = Hashing()
    row = row_of("Norland area?", ("area of norland", "coast"), encoder)
    said = ("trust high; score 0.25", "score 12")
    previews = tuple(p.model_copy(update={"descriptor": d}) for p, d in zip(row.previews, said, strict=True))
    shown = Evidence.of_row(row.model_copy(update={"previews": previews}))
    known = FeatureMap.fit(["first", "second"], [Evidence.of_row(row), shown], 1)
    assert known.described == ("trust", "score")
    raw = known([shown]) * np.asarray(known.scale) + np.asarray(known.center)
    assert raw[0, -4:].tolist() == [1.0, 0.25, 0.0, 12.0]
