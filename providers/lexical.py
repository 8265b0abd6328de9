"""Word matching without a model: a tokeniser, BM25 bounded to [0, 1), and TF-IDF cosine."""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import regex

K1 = 1.5
B = 0.75
SORT_EVERY = 4096
"""Entries that may wait outside of the sorted order."""
KEPT_REMOVED = 256
"""Removed documents that may keep their slots, however few are left."""

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the and or but if of in on at to from by with for as is are was were be been being it its
        this that these those there their they them he she his her you your we our i my me do does did done
        have has had not no nor so than then too very can could will would shall should may might must what
        which who whom whose when where why how about into over under between out up down again some such
        only own same other also please""",
    )
)

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_PAIRED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}々ー]"
"""Scripts that are written without spaces between words."""

_TERM = regex.compile(
    rf"(?P<pairs>(?:{_PAIRED}\p{{M}}*)+)"
    rf"|(?P<word>(?:(?!{_PAIRED})[\p{{L}}\p{{N}}]\p{{M}}*)+)"
    r"|(?P<flag>\p{Regional_Indicator}{2})"
    r"|(?P<emoji>(?![\u0000-\u00ff])\p{Extended_Pictographic})"
)
_OPTIONAL_MARKS = regex.compile(r"[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
"""Accents that did not compose, Hebrew points, Arabic vowel signs and the tatweel: a text has them or has them not."""
_ARABIC = str.maketrans({"أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي", "ة": "ه"})
_ARABIC_ARTICLE = regex.compile(r"^ال(?=\p{Arabic}{3})")


def words(text: str) -> list[str]:
    """Casefolded words in order, stop words kept; each emoji is a word.

    Scripts written without spaces give character pairs. Optional marks are left out, and Arabic words stand without
    their article and with one form of alef, so that the usual spellings of a word meet.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    folded = _OPTIONAL_MARKS.sub("", folded).translate(_ARABIC)
    found: list[str] = []
    for match in _TERM.finditer(folded):
        term = match[0]
        if match.lastgroup == "pairs":
            found.extend(term[i : i + 2] for i in range(max(1, len(term) - 1)))
        else:
            found.append(_ARABIC_ARTICLE.sub("", term) if match.lastgroup == "word" else term)
    return found


def stem(word: str) -> str:
    """The word without its English plural ending (Harman's S-stemmer)."""
    if len(word) > 3 and word.endswith("ies") and word[-4] not in "ae":
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("es") and word[-3] not in "aeo":
        return word[:-1]
    if len(word) > 3 and word.endswith("s") and word[-2] not in "us":
        return word[:-1]
    return word


@lru_cache(maxsize=8192)
def tokenise(text: str) -> tuple[str, ...]:
    """Index terms of a text, in order: words, without stop words, stemmed."""
    return tuple(stem(word) for word in words(text) if word not in STOP_WORDS)


class LexicalIndex:
    """An inverted index that grows and shrinks one document at a time; scores depend on its content alone.

    Documents have slots in the order they came. A document's entries (term, count) are one run of the entry arrays; a
    removed document keeps its slot with counts of zero until it is compacted away.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._names: list[str] = []
        self._terms: dict[str, int] = {}
        self._frequency = array("q")
        self._first = array("q", [0])
        self._entry_term = array("q")
        self._entry_count = array("d")
        self._length = array("d")
        self._total_length = 0
        self._sorted_entries = 0
        self._order = np.zeros(0, dtype=np.int64)
        self._starts = np.zeros(1, dtype=np.int64)
        self._order_slots = np.zeros(0, dtype=np.int64)
        self._recent: dict[int, list[tuple[int, int]]] = {}
        self._weights: tuple[np.ndarray, np.ndarray] | None = None
        self._last: tuple[str, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: str) -> bool:
        return name in self._slots

    def add(self, name: str, text: str) -> None:
        """Index `text` under `name`, in place of what `name` had."""
        self.remove(name)
        tokens = tokenise(text)
        slot = len(self._names)
        self._slots[name] = slot
        self._names.append(name)
        self._length.append(len(tokens))
        self._total_length += len(tokens)
        for token, count in sorted(Counter(tokens).items()):
            term = self._terms.setdefault(token, len(self._terms))
            if term == len(self._frequency):
                self._frequency.append(0)
            self._frequency[term] += 1
            self._recent.setdefault(term, []).append((len(self._entry_term), slot))
            self._entry_term.append(term)
            self._entry_count.append(count)
        self._first.append(len(self._entry_term))
        self._weights = self._last = None

    def remove(self, name: str) -> None:
        """Forget `name`; nothing happens where it is unknown."""
        slot = self._slots.pop(name, None)
        if slot is None:
            return
        for entry in range(self._first[slot], self._first[slot + 1]):
            self._frequency[self._entry_term[entry]] -= 1
            self._entry_count[entry] = 0.0
        self._total_length -= int(self._length[slot])
        self._weights = self._last = None
        if len(self._names) > 2 * len(self._slots) + KEPT_REMOVED:
            self._compact()

    def bm25(self, text: str) -> dict[str, float]:
        """BM25 over its upper bound for this query, so in [0, 1) whatever else is stored; zeros are left out.

        k1 = 1.5, b = 0.75, idf = ln(1 + (N - df + 0.5) / (df + 0.5)); unknown terms count with df = 0.
        """
        return self._named(self._bm25(text))

    def best_bm25(self, text: str, k: int | None = None) -> list[tuple[str, float]]:
        """The k names (None: all) of highest BM25, best first, equal scores by name; zeros are left out."""
        return self._best(self._bm25(text), k)

    def bm25_of(self, text: str, names: Sequence[str]) -> list[float]:
        """BM25 of these names, in that order; 0 for one that is not here."""
        scores = self._bm25(text)
        slots = [self._slots.get(name) for name in names]
        return [float(scores[slot]) if slot is not None else 0.0 for slot in slots]

    def tfidf(self, text: str) -> dict[str, float]:
        """Cosine of TF-IDF vectors (raw counts, smoothed idf), in [0, 1]; zeros are left out."""
        return self._named(self._tfidf(text))

    def best_tfidf(self, text: str, k: int | None = None) -> list[tuple[str, float]]:
        """The k names (None: all) of highest TF-IDF cosine, best first, equal scores by name; zeros are left out."""
        return self._best(self._tfidf(text), k)

    def dump(self) -> tuple[dict[str, Sequence[str]], dict[str, np.ndarray]]:
        """The index as lists of names and arrays, without removed documents, for `load`."""
        self._compact()
        lists: dict[str, Sequence[str]] = {"names": self._names, "terms": list(self._terms)}
        arrays: dict[str, np.ndarray] = {
            "first": np.array(self._first, dtype=np.int64),
            "entry_term": np.array(self._entry_term, dtype=np.int64),
            "entry_count": np.array(self._entry_count, dtype=np.float64),
            "length": np.array(self._length, dtype=np.float64),
        }
        return lists, arrays

    @classmethod
    def load(cls, lists: Mapping[str, Sequence[str]], arrays: Mapping[str, np.ndarray]) -> LexicalIndex:
        """The index that gave `dump`."""
        index = cls()
        index._names = list(lists["names"])
        index._slots = {name: slot for slot, name in enumerate(index._names)}
        index._terms = {term: number for number, term in enumerate(lists["terms"])}
        index._first = array("q", arrays["first"].tobytes())
        index._entry_term = array("q", arrays["entry_term"].tobytes())
        index._entry_count = array("d", arrays["entry_count"].tobytes())
        index._length = array("d", arrays["length"].tobytes())
        index._frequency = array("q", np.bincount(arrays["entry_term"], minlength=len(index._terms)).tobytes())
        index._total_length = int(arrays["length"].sum())
        index._sort()
        return index

    def _bm25(self, text: str) -> np.ndarray:
        """Scores by slot; those of the last text are kept, since a search often asks for them twice."""
        if self._last is None or self._last[0] != text:
            self._last = (text, self._computed_bm25(text))
        return self._last[1]

    def _computed_bm25(self, text: str) -> np.ndarray:
        count = len(self._slots)
        scores = np.zeros(len(self._names))
        if not count:
            return scores
        mean_length = max(self._total_length / count, 1e-9)
        bound = 0.0
        for token in sorted(set(tokenise(text))):
            term = self._terms.get(token)
            frequency = self._frequency[term] if term is not None else 0
            idf = math.log(1.0 + (count - frequency + 0.5) / (frequency + 0.5))
            bound += idf * (K1 + 1.0)
            if term is None or not frequency:
                continue
            slots, counts = self._hits(term)
            lengths = np.frombuffer(self._length, dtype=np.float64)[slots]
            scores[slots] += idf * counts * (K1 + 1.0) / (counts + K1 * (1.0 - B + B * lengths / mean_length))
        return scores / bound if bound else scores

    def _tfidf(self, text: str) -> np.ndarray:
        """Scores by slot."""
        count = len(self._slots)
        scores = np.zeros(len(self._names))
        if not count:
            return scores
        idf, norms = self._document_weights()
        query_norm = 0.0
        for token, repeats in sorted(Counter(tokenise(text)).items()):
            term = self._terms.get(token)
            weight = repeats * (idf[term] if term is not None else math.log(1.0 + count) + 1.0)
            query_norm += weight * weight
            if term is not None and self._frequency[term]:
                slots, counts = self._hits(term)
                scores[slots] += weight * counts * idf[term]
        return np.minimum(scores / (norms * math.sqrt(query_norm)), 1.0) if query_norm else scores

    def _hits(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """Slots and counts of a term's entries, in the order they came; counts of removed documents are 0."""
        if self._sorted_entries + SORT_EVERY < len(self._entry_term):
            self._sort()
        recent = self._recent.get(term, ())
        if term + 1 < len(self._starts):
            within = slice(self._starts[term], self._starts[term + 1])
            entries, slots = self._order[within], self._order_slots[within]
        else:
            entries = slots = np.zeros(0, dtype=np.int64)
        if recent:
            late = np.array(recent, dtype=np.int64)
            entries, slots = np.concatenate([entries, late[:, 0]]), np.concatenate([slots, late[:, 1]])
        return slots, np.frombuffer(self._entry_count, dtype=np.float64)[entries]

    def _sort(self) -> None:
        """Bring all entries in order of their terms, so that those of one term are a slice."""
        terms = np.frombuffer(self._entry_term, dtype=np.int64)
        slots = self._entry_slots()
        self._order = np.argsort(terms, kind="stable")
        self._order_slots = slots[self._order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(terms, minlength=len(self._terms)))])
        self._sorted_entries = len(self._entry_term)
        self._recent = {}

    def _entry_slots(self) -> np.ndarray:
        """The slot of every entry."""
        first: np.ndarray = np.array(self._first, dtype=np.int64)
        return np.repeat(np.arange(len(self._names)), first[1:] - first[:-1])

    def _document_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Smoothed idf by term and the TF-IDF norm by slot (1 where it has none)."""
        if self._weights is None:
            frequency = np.frombuffer(self._frequency, dtype=np.int64)
            idf = np.log((1.0 + len(self._slots)) / (1.0 + frequency)) + 1.0
            terms = np.frombuffer(self._entry_term, dtype=np.int64)
            weights = np.frombuffer(self._entry_count, dtype=np.float64) * idf[terms]
            squares = np.bincount(self._entry_slots(), weights * weights, minlength=len(self._names))
            self._weights = (idf, np.where(squares > 0, np.sqrt(squares), 1.0))
        return self._weights

    def _compact(self) -> None:
        """Drop the slots of removed documents and the terms that only they had."""
        if len(self._slots) == len(self._names):
            return
        kept = LexicalIndex()
        tokens = {number: token for token, number in self._terms.items()}
        for name, slot in sorted(self._slots.items(), key=lambda item: item[1]):
            kept._slots[name] = len(kept._names)
            kept._names.append(name)
            kept._length.append(self._length[slot])
            for entry in range(self._first[slot], self._first[slot + 1]):
                term = kept._terms.setdefault(tokens[self._entry_term[entry]], len(kept._terms))
                if term == len(kept._frequency):
                    kept._frequency.append(0)
                kept._frequency[term] += 1
                kept._entry_term.append(term)
                kept._entry_count.append(self._entry_count[entry])
            kept._first.append(len(kept._entry_term))
        kept._total_length = self._total_length
        kept._sort()
        self.__dict__.update(kept.__dict__)

    def _named(self, scores: np.ndarray) -> dict[str, float]:
        return {self._names[slot]: float(scores[slot]) for slot in np.flatnonzero(scores)}

    def _best(self, scores: np.ndarray, k: int | None) -> list[tuple[str, float]]:
        slots = np.flatnonzero(scores)
        if k is not None and k < len(slots):
            if k <= 0:
                return []
            found = scores[slots]
            slots = slots[found >= np.partition(found, len(found) - k)[len(found) - k]]
        hits = [(self._names[slot], float(scores[slot])) for slot in slots]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]
