"""A trained adapter's record, and the check that it is read as it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from providers.base import ProviderCard
from providers.errors import EngineError
from providers.types import SCHEMA_VERSION, Flow
from router.base_model import Dtype, load_base
from router.codec import CodecName, template_hash

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RECORD = "record.json"
TRAIN_AGAIN = "train again (`memroute train CONFIG`)"


class AdapterRecord(Flow):
    """What an adapter was trained on and how; lies beside its weights as `record.json`."""

    base: str
    """As `train.base` names it."""
    codec: CodecName
    providers: tuple[str, ...]
    template_hash: str
    guide_hash: str = ""
    """Of what the guide says about the providers; empty in records that were written before it existed."""
    dataset_hash: str
    settings: dict[str, Any]
    """The training section of the config, and the seed."""
    fingerprint: str
    """Equal for trainings that must give the same adapter."""
    rows: dict[str, int]
    """Training rows by phase."""
    steps: int
    stopped_early: bool
    """True where the time cap ended the training."""
    heads: str = ""
    """Identity of the heads whose forecasts it was shown; empty where it was shown none."""
    offsets: dict[str, dict[str, float]] = Field(default_factory=dict)
    """What is added to a candidate's log-odds, by phase and candidate (marks)."""
    validation: dict[str, float] = Field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def descriptors(self) -> tuple[str, ...] | None:
        """The parts of descriptors that it was trained with; None: all that were recorded."""
        named = self.settings.get("descriptors")
        return None if named is None else tuple(named)


def read_record(adapter: Path) -> AdapterRecord:
    """The record beside an adapter; `EngineError` where it is missing or unreadable."""
    path = adapter / RECORD
    try:
        return AdapterRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EngineError(f"{path} is missing: no training has finished there; {TRAIN_AGAIN}.") from error
    except ValidationError as error:
        raise EngineError(f"{path} is damaged or of another version; {TRAIN_AGAIN}.") from error


def check_record(record: AdapterRecord, base: str, codec: CodecName, cards: tuple[ProviderCard, ...]) -> None:
    """Raise `EngineError` where prompts made now would not be those that the adapter was trained on."""
    providers = tuple(card.name for card in cards)
    for name, trained, now in (
        ("base model", record.base, base),
        ("codec", record.codec, codec),
        ("providers", ", ".join(record.providers), ", ".join(providers)),
    ):
        if trained != now:
            raise EngineError(f"The adapter was trained for the {name} {trained}, not {now}; {TRAIN_AGAIN}.")
    if record.template_hash != template_hash(codec, cards):
        raise EngineError(f"The prompts have changed since the adapter was trained; {TRAIN_AGAIN}.")


def load_router(
    base: str, adapter: Path | None, codec: CodecName, cards: tuple[ProviderCard, ...], *, dtype: Dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base model, with the adapter merged into it if there is one, and its tokenizer.

    The merge is done in float32 and then cast, as in the exported model. Raises `EngineError` for an adapter that is
    unfinished or was trained on other prompts or providers.
    """
    if adapter is None:
        return load_base(base, dtype=dtype)
    check_record(read_record(adapter), base, codec, cards)
    model, tokenizer = load_merged(base, adapter)
    import torch

    return model.to(getattr(torch, dtype)), tokenizer


def load_merged(base: str, adapter: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The float32 base model with the adapter's weights added to its own."""
    model, tokenizer = load_base(base, dtype="float32")
    from peft import PeftModel

    try:
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        raise EngineError(f"The adapter in {adapter} cannot be put onto {base} ({error}); {TRAIN_AGAIN}.") from error
    return merged.eval(), tokenizer
