"""Word matching without a model: a tokeniser, BM25 bounded to [0, 1), and TF-IDF cosine."""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from functools import lru_cache

import numpy as np

K1 = 1.5
B = 0.75

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

_SPACELESS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_SPACELESS}]+|[^\W_{_SPACELESS}]+")
_SPACELESS_RUN = re.compile(rf"[{_SPACELESS}]")


def words(text: str) -> list[str]:
    """Casefolded words in order, stop words kept; scripts written without spaces give character pairs."""
    found: list[str] = []
    for match in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _SPACELESS_RUN.match(match):
            found.extend(match[i : i + 2] for i in range(max(1, len(match) - 1)))
        else:
            found.append(match)
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
    """An inverted index that grows and shrinks one document at a time; scores depend on its content alone."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._names: list[str] = []
        self._terms: dict[str, int] = {}
        self._frequency: list[int] = []
        self._postings: list[list[int]] = []
        self._entry_slot = array("q")
        self._entry_term = array("q")
        self._entry_count = array("d")
        self._length = array("d")
        self._own: dict[int, list[int]] = {}
        self._total_length = 0
        self._norms: np.ndarray | None = None

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
        self._own[slot] = []
        for token, count in sorted(Counter(tokens).items()):
            term = self._terms.setdefault(token, len(self._terms))
            if term == len(self._frequency):
                self._frequency.append(0)
                self._postings.append([])
            self._frequency[term] += 1
            self._postings[term].append(len(self._entry_slot))
            self._own[slot].append(len(self._entry_slot))
            self._entry_slot.append(slot)
            self._entry_term.append(term)
            self._entry_count.append(count)
        self._norms = None

    def remove(self, name: str) -> None:
        """Forget `name`; nothing happens where it is unknown."""
        slot = self._slots.pop(name, None)
        if slot is None:
            return
        for entry in self._own.pop(slot):
            term = self._entry_term[entry]
            self._frequency[term] -= 1
            self._postings[term].remove(entry)
            self._entry_count[entry] = 0.0
        self._total_length -= int(self._length[slot])
        self._norms = None

    def bm25(self, text: str) -> dict[str, float]:
        """BM25 over its upper bound for this query, so in [0, 1) whatever else is stored; zeros are left out.

        k1 = 1.5, b = 0.75, idf = ln(1 + (N - df + 0.5) / (df + 0.5)); unknown terms count with df = 0.
        """
        count = len(self._slots)
        if not count:
            return {}
        mean_length = max(self._total_length / count, 1e-9)
        scores = np.zeros(len(self._names))
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
        return self._named(scores / bound) if bound else {}

    def tfidf(self, text: str) -> dict[str, float]:
        """Cosine of TF-IDF vectors (raw counts, smoothed idf), in [0, 1]; zeros are left out."""
        count = len(self._slots)
        if not count:
            return {}
        idf = np.log((1.0 + count) / (1.0 + np.asarray(self._frequency, dtype=np.float64))) + 1.0
        scores = np.zeros(len(self._names))
        query_norm = 0.0
        for token, repeats in sorted(Counter(tokenise(text)).items()):
            term = self._terms.get(token)
            weight = repeats * (idf[term] if term is not None else math.log(1.0 + count) + 1.0)
            query_norm += weight * weight
            if term is not None and self._frequency[term]:
                slots, counts = self._hits(term)
                scores[slots] += weight * counts * idf[term]
        if not query_norm:
            return {}
        norms = self._document_norms(idf)
        return self._named(np.minimum(scores / (norms * math.sqrt(query_norm)), 1.0))

    def _hits(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        entries = np.asarray(self._postings[term])
        return (
            np.frombuffer(self._entry_slot, dtype=np.int64)[entries],
            np.frombuffer(self._entry_count, dtype=np.float64)[entries],
        )

    def _document_norms(self, idf: np.ndarray) -> np.ndarray:
        if self._norms is None:
            if not len(self._entry_slot):
                return np.ones(len(self._names))
            weights = (
                np.frombuffer(self._entry_count, dtype=np.float64)
                * idf[np.frombuffer(self._entry_term, dtype=np.int64)]
            )
            squares = np.bincount(
                np.frombuffer(self._entry_slot, dtype=np.int64), weights * weights, minlength=len(self._names)
            )
            self._norms = np.where(squares > 0, np.sqrt(squares), 1.0)
        return self._norms

    def _named(self, scores: np.ndarray) -> dict[str, float]:
        return {self._names[slot]: float(scores[slot]) for slot in np.flatnonzero(scores)}
