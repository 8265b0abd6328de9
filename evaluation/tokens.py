"""How many characters a token takes, so that lengths can be stated in tokens too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from providers.errors import EngineError

if TYPE_CHECKING:
    from synth.runs import Run

SAMPLE = 400
"""Retrieved texts that the rate is measured on, drawn by seed."""


def chars_per_token(run: Run, split: str) -> float | None:
    """Mean characters per token of a split's retrieved texts under the tokenizer of the router's base model.

    None where nothing was retrieved, or the tokenizer cannot be had.
    """
    probes = run.facts.probes(f"arms/{split}", run.facts.probed(f"arms/{split}"))
    texts = sorted({served.retrieval.text for probe in probes.values() for served in probe.served.values()} - {""})
    if not texts:
        return None
    sample = random.Random(run.config.seed).sample(texts, min(SAMPLE, len(texts)))
    from transformers import AutoTokenizer

    from router.base_model import base_location, quiet_loading

    try:
        location = base_location(run.config.train.base)
        quiet_loading()
        tokenizer = AutoTokenizer.from_pretrained(location)
    except (EngineError, OSError, ValueError):
        return None
    tokens = sum(len(ids) for ids in tokenizer(sample, add_special_tokens=False)["input_ids"])
    return sum(map(len, sample)) / tokens if tokens else None
