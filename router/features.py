"""What the heads see of a task: its question and every provider's preview as numbers, alike in training and inference.

Only what is known before the task starts goes in: no outcome, no family, no retrieval score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from providers.embedder import Encoder
from providers.governance.words import BINS, FIELDS, places
from providers.lexical import STOP_WORDS, tokenise
from providers.types import Flow
from router.context import BeginContext
from router.table import TableRow

PREVIEW_LENGTH = 200
"""Characters that a preview has at most; lengths are given as shares of it."""

SURFACE = ("capitals", "digits", "commas", "words", "asks", "stop words")
"""Features of the question's form, in the order of a task's vector."""

SCORE = "score"
"""A part of descriptors that only an ablation shows: a retrieval score on its provider's own scale."""

PER_PROVIDER = ("overlap", "cosine", "length", "empty", "lead")
"""Features of one provider, in the order of a task's vector."""


@dataclass(frozen=True)
class Evidence:
    """One task as a router sees it. Embeddings are unit vectors rounded to 5 decimals; an empty preview has zeros."""

    question: str
    embedding: np.ndarray
    previews: tuple[str, ...]
    """In the order of the providers."""
    preview_embeddings: np.ndarray
    descriptors: tuple[str, ...] = ()
    """What the previews say of how far their records are to be trusted, in the order of the providers."""

    @classmethod
    def of_row(cls, row: TableRow) -> Self:
        return cls(
            question=row.question,
            embedding=np.asarray(row.embedding, dtype=np.float64),
            previews=tuple(preview.text for preview in row.previews),
            preview_embeddings=np.asarray(row.preview_embeddings, dtype=np.float64),
            descriptors=tuple(preview.descriptor for preview in row.previews),
        )

    @classmethod
    def of_context(cls, context: BeginContext, encoder: Encoder) -> Self:
        """The same numbers as `of_row` gives for the row that the context was recorded in."""
        texts = [preview.text for preview in context.previews]
        known = context.embedding if context.embedding is not None else encoder.encode([context.question])[0]
        vectors = np.zeros((len(texts), len(known)))
        shown = [place for place, text in enumerate(texts) if text]
        if shown:
            vectors[shown] = encoder.encode([texts[place] for place in shown])
        return cls(
            question=context.question,
            embedding=_rounded(known),
            previews=tuple(texts),
            preview_embeddings=np.stack([_rounded(vector) for vector in vectors]),
            descriptors=tuple(preview.descriptor for preview in context.previews),
        )


def word_overlap(question: str, preview: str) -> float:
    """Share of the question's index terms that the preview holds, 0 to 1."""
    asked = set(tokenise(question))
    return len(asked & set(tokenise(preview))) / len(asked) if asked else 0.0


def surface(question: str) -> list[float]:
    """`SURFACE`: names, figures, enumerations, length, question mark, and the share of words that carry no topic."""
    found = re.findall(r"\w+", question)
    return [
        float(sum(word[0].isupper() for word in found[1:])),
        float(any(character.isdigit() for character in question)),
        float(question.count(",")),
        float(len(found)),
        float(question.rstrip().endswith("?")),
        sum(word.lower() in STOP_WORDS for word in found) / max(1, len(found)),
    ]


class FeatureMap(Flow):
    """Evidence -> standardised vectors; fitted once on the exploration tasks.

    A vector holds the question's principal components and `SURFACE`, then `PER_PROVIDER` for every provider, so that a
    head also sees what the other providers would show; then, where previews have descriptors, their bins.
    """

    providers: tuple[str, ...]
    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    """Rows are principal directions of the question embeddings."""
    center: tuple[float, ...]
    scale: tuple[float, ...]
    described: tuple[str, ...] = ()
    """The parts of descriptors that are features of every provider; none where the previews it was fitted on said
    nothing."""

    @classmethod
    def fit(cls, providers: Sequence[str], tasks: Sequence[Evidence], dimensions: int) -> Self:
        """Principal components and standardisation over `tasks`; fewer components where there are fewer tasks."""
        embeddings = np.stack([task.embedding for task in tasks])
        mean = embeddings.mean(axis=0)
        _, _, directions = np.linalg.svd(embeddings - mean, full_matrices=False)
        components = directions[:dimensions]
        largest = np.abs(components).argmax(axis=1)
        components = components * np.sign(components[np.arange(len(components)), largest])[:, None]
        said = {name for task in tasks for descriptor in task.descriptors for name in _parts(descriptor)}
        described = tuple(name for name in (*FIELDS, SCORE) if name in said)
        raw = _raw(tasks, mean, components, described)
        spread = raw.std(axis=0)
        return cls(
            providers=tuple(providers),
            mean=tuple(mean.tolist()),
            components=tuple(map(tuple, components.tolist())),
            center=tuple(raw.mean(axis=0).tolist()),
            scale=tuple(np.where(spread > 1e-9, spread, 1.0).tolist()),
            described=described,
        )

    def __call__(self, tasks: Sequence[Evidence]) -> np.ndarray:
        """Shape (tasks, features), float64."""
        raw = _raw(tasks, np.asarray(self.mean), np.asarray(self.components), self.described)
        return np.asarray((raw - np.asarray(self.center)) / np.asarray(self.scale))


def nonempty(tasks: Sequence[Evidence]) -> np.ndarray:
    """Which previews have text; shape (tasks, providers), bool."""
    return np.asarray([[bool(text) for text in task.previews] for task in tasks])


def _rounded(vector: np.ndarray) -> np.ndarray:
    return np.asarray([round(float(value), 5) for value in vector])


def descriptor_features(task: Evidence, described: Sequence[str]) -> np.ndarray:
    """Shape (providers, len(described)): a quarter for every step of a field's scale, 0 where nothing is said of it."""
    known = [_parts(text) for text in task.descriptors or ("",) * len(task.previews)]
    return np.asarray([[each.get(name, 0.0) for name in described] for each in known])


def _parts(descriptor: str) -> dict[str, float]:
    """What a descriptor says, as numbers."""
    found = {name: (place + 1) / len(BINS[name]) for name, place in places(descriptor).items()}
    score = re.search(r"\bscore (-?\d+(?:\.\d+)?)", descriptor)
    return found | ({SCORE: float(score[1])} if score else {})


def _raw(tasks: Sequence[Evidence], mean: np.ndarray, components: np.ndarray, described: Sequence[str]) -> np.ndarray:
    return np.stack(
        [
            np.concatenate(
                [
                    components @ (task.embedding - mean),
                    surface(task.question),
                    preview_features(task).ravel(),
                    descriptor_features(task, described).ravel(),
                ]
            )
            for task in tasks
        ]
    )


def preview_features(task: Evidence) -> np.ndarray:
    """Shape (providers, len(PER_PROVIDER)). `lead`: by how much a preview's overlap exceeds the best other one's."""
    overlaps = np.asarray([word_overlap(task.question, text) for text in task.previews])
    leads = [overlap - max(np.delete(overlaps, place), default=0.0) for place, overlap in enumerate(overlaps)]
    return np.column_stack(
        [
            overlaps,
            task.preview_embeddings @ task.embedding,
            [min(len(text) / PREVIEW_LENGTH, 1.0) for text in task.previews],
            [float(not text) for text in task.previews],
            leads,
        ]
    )
