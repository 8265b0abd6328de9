"""Words and meaning together: a weighted sum of TF-IDF cosine and embedding cosine over the same records."""

from __future__ import annotations

import numpy as np

from providers.space import Space
from providers.types import Query, Record


def search_hybrid(space: Space, query: Query, k: int, kind: str, words_share: float) -> list[Record]:
    """The k records best by `words_share` of TF-IDF and the rest of cosine, then by id.

    Each list is fetched at twice k and merged, as in the port that the paper used.
    """
    reach = 2 * k
    words = {record.id: score for record, score in space.search_tfidf(query.text, reach, kind=kind)}
    meaning = {record.id: score for record, score in space.search_dense(query.embedding, reach, kind=kind)}
    rest = sorted(words.keys() - meaning.keys())
    meaning |= dict(zip(rest, np.einsum("ij,j->i", space.vectors(rest), query.embedding).tolist(), strict=True))
    blended = {
        record_id: words_share * words.get(record_id, 0.0) + (1 - words_share) * cosine
        for record_id, cosine in meaning.items()
    }
    best = sorted(blended, key=lambda record_id: (-blended[record_id], record_id))[:k]
    return [space.existing(record_id) for record_id in best]
