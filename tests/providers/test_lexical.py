"""Word matching: terms, bounded BM25, TF-IDF cosine, and an index that grows and shrinks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.lexical import LexicalIndex, stem, tokenise, words

WORD = st.sampled_from("area border coal river railway income the of life population".split())
TEXTS = st.lists(WORD, max_size=8).map(" ".join)


def index_of(texts: dict[str, str]) -> LexicalIndex:
    index = LexicalIndex()
    for name, text in texts.items():
        index.add(name, text)
    return index


def test_terms_are_casefolded_stemmed_and_free_of_stop_words() -> None:
    assert tokenise("What are the Countries of the EU?") == ("country", "eu")
    assert tokenise("Straße café") == tokenise("STRASSE CAFÉ")


@pytest.mark.parametrize(
    ("plural", "singular"),
    [("borders", "border"), ("cities", "city"), ("glass", "glass"), ("gas", "gas"), ("census", "census")],
)
def test_only_plural_endings_are_cut(plural: str, singular: str) -> None:
    assert stem(plural) == singular


def test_words_of_unspaced_scripts_match_by_character_pairs() -> None:
    assert words("人口密度") == ["人口", "口密", "密度"]
    index = index_of({"a": "日本の人口密度", "b": "面積"})
    assert list(index.bm25("人口")) == ["a"]


def test_bm25_is_the_formula_over_its_bound() -> None:
    index = index_of({"a": "coal coal river", "b": "river border"})
    idf_coal = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    idf_river = math.log(1 + (2 - 2 + 0.5) / (2 + 0.5))
    long, short = 3 / 2.5, 2 / 2.5
    expected_a = idf_coal * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * long)) + idf_river * 2.5 / (
        1 + 1.5 * (0.25 + 0.75 * long)
    )
    expected_b = idf_river * 2.5 / (1 + 1.5 * (0.25 + 0.75 * short))
    bound = 2.5 * (idf_coal + idf_river)
    assert index.bm25("coal river") == pytest.approx({"a": expected_a / bound, "b": expected_b / bound})


def test_unknown_query_words_lower_the_bm25_score() -> None:
    index = index_of({"a": "coal", "b": "river"})
    assert index.bm25("coal zinc")["a"] < index.bm25("coal")["a"]


@settings(deadline=None)
@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), TEXTS, max_size=8), TEXTS)
def test_bm25_is_at_least_0_and_below_1(texts: dict[str, str], query: str) -> None:
    assert all(0 < score < 1 for score in index_of(texts).bm25(query).values())


@settings(deadline=None)
@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), TEXTS, min_size=1, max_size=8), TEXTS)
def test_tfidf_agrees_with_scikit_learn(texts: dict[str, str], query: str) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    ours = index_of(texts).tfidf(query)
    if not any(tokenise(text) for text in texts.values()):
        assert ours == {}
        return
    vectoriser = TfidfVectorizer(analyzer=tokenise)
    documents = vectoriser.fit_transform(texts.values())
    counts = np.zeros(len(vectoriser.vocabulary_))
    unknown = 0.0
    for token in tokenise(query):
        if token in vectoriser.vocabulary_:
            counts[vectoriser.vocabulary_[token]] += 1
    for token in set(tokenise(query)) - set(vectoriser.vocabulary_):
        unknown += (tokenise(query).count(token) * (math.log(1 + len(texts)) + 1)) ** 2
    weighted = counts * vectoriser.idf_
    norm = math.sqrt(float(weighted @ weighted) + unknown)
    cosines = documents @ weighted / norm if norm else np.zeros(len(texts))
    expected = {name: cosine for name, cosine in zip(texts, cosines, strict=True) if cosine > 0}
    assert ours == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.one_of(st.none(), TEXTS)), max_size=20), TEXTS)
def test_scores_depend_on_content_and_not_on_history(changes: list[tuple[str, str | None]], query: str) -> None:
    grown, content = LexicalIndex(), {}
    for name, text in changes:
        if text is None:
            grown.remove(name)
            content.pop(name, None)
        else:
            grown.add(name, text)
            content[name] = text
    fresh = index_of(dict(sorted(content.items())))
    assert grown.bm25(query) == pytest.approx(fresh.bm25(query))
    assert grown.tfidf(query) == pytest.approx(fresh.tfidf(query))
    assert len(grown) == len(content)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("日本の人口密度", "人口"),
        ("ﾊﾟﾝを買う", "パン"),
        ("中华人民共和国的首都", "首都"),
        ("الكِتَابُ الجديد", "كتاب"),
        ("إسلام آباد", "اسلام"),
        ("हिन्दी भाषा", "भाषा"),
        ("ภาษาไทย", "ไทย"),
        ("cafe\u0301 terrace", "CAFÉ"),
        ("Straße", "strasse"),
        ("party 🎉 tonight", "🎉"),
        ("the 👩🏽‍🔬 lab", "👩🔬"),
        ("matches of 🇫🇷", "🇫🇷"),
        ("שָׁלוֹם עולם", "שלום"),
        ("한국어 검색", "검색"),
        ("İstanbul", "i̇stanbul"),
    ],
)
def test_words_of_any_script_are_found_in_their_usual_spellings(stored: str, asked: str) -> None:
    index = index_of({"a": stored, "b": "coal in Chad 🚂 煤 فحم"})
    assert list(index.bm25(asked)) == ["a"]
    assert list(index.tfidf(asked)) == ["a"]


def test_flags_of_two_countries_are_two_words() -> None:
    assert list(index_of({"a": "🇫🇷", "b": "🇫🇮"}).bm25("🇫🇮")) == ["b"]


@settings(deadline=None)
@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), TEXTS, max_size=8), TEXTS, st.integers(0, 9))
def test_the_best_k_are_the_first_of_all(texts: dict[str, str], query: str, k: int) -> None:
    index = index_of(texts)
    every = sorted(index.bm25(query).items(), key=lambda hit: (-hit[1], hit[0]))
    assert index.best_bm25(query) == every
    assert index.best_bm25(query, k) == every[:k]
    assert index.best_tfidf(query, k) == sorted(index.tfidf(query).items(), key=lambda hit: (-hit[1], hit[0]))[:k]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.one_of(st.none(), TEXTS)), max_size=20), TEXTS, TEXTS)
def test_a_loaded_index_scores_and_grows_as_the_one_that_was_dumped(
    changes: list[tuple[str, str | None]], query: str, later: str
) -> None:
    grown = LexicalIndex()
    for name, text in changes:
        if text is None:
            grown.remove(name)
        else:
            grown.add(name, text)
    scores = grown.bm25(query), grown.tfidf(query)
    loaded = LexicalIndex.load(*grown.dump())
    assert (loaded.bm25(query), loaded.tfidf(query)) == scores
    assert (grown.bm25(query), grown.tfidf(query)) == scores
    for index in (grown, loaded):
        index.add("later", later)
        index.remove("p")
    assert loaded.bm25(query) == grown.bm25(query)
    assert loaded.tfidf(query) == pytest.approx(grown.tfidf(query))


def test_entries_are_sorted_on_the_way_without_changing_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.lexical.SORT_EVERY", 5)
    index = LexicalIndex()
    texts = {f"d{n}": f"coal {'river ' * (n % 3)}border{n}" for n in range(30)}
    for name, text in texts.items():
        index.add(name, text)
        index.bm25("coal river")
    index.remove("d7")
    del texts["d7"]
    assert index.bm25("coal river border3") == pytest.approx(index_of(texts).bm25("coal river border3"))


def test_removed_documents_take_no_room_for_long() -> None:
    """A list with a cap takes in and drops documents for as long as its memory lives."""
    index, fresh = LexicalIndex(), LexicalIndex()
    for n in range(3000):
        index.add(f"d{n}", f"coal river {n % 7} number{n}")
        index.remove(f"d{n - 20}")
    for n in range(2980, 3000):
        fresh.add(f"d{n}", f"coal river {n % 7} number{n}")
    assert index.bm25("river 3 number2990") == fresh.bm25("river 3 number2990")
    assert index.tfidf("coal 4 number2999") == pytest.approx(fresh.tfidf("coal 4 number2999"))
    assert len(index._names) < 400
    assert len(index._terms) < 500
