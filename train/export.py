"""Writing a finished training: the adapter with its record and card, and the merged model that any engine can serve."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from providers.errors import EngineError
from providers.files import write_atomically
from router.adapter import RECORD, AdapterRecord, load_merged
from router.base_model import Dtype
from train.model_card import model_card

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")

MOST_RANK = 512
"""The highest rank that vLLM serves (`--max-lora-rank`)."""


def export(
    saved: Path, tokenizer: PreTrainedTokenizerBase, record: AdapterRecord, adapter: Path, merged: Path, dtype: Dtype
) -> None:
    """Write `merged` and then `adapter`, each whole or not at all; the adapter's folder is what says "finished".

    `saved` is a folder with the adapter's weights. The merge is done in float32 and then cast to `dtype`. Both folders
    carry tokenizer, chat template, model card and record. Raises `EngineError` for an adapter that vLLM would not load.
    """
    check_servable(saved)

    def write_adapter(folder: Path) -> None:
        for name in ADAPTER_FILES:
            shutil.copyfile(saved / name, folder / name)
        _finish(folder, tokenizer, record, merged=False)

    def write_merged(folder: Path) -> None:
        import torch

        whole, _ = load_merged(record.base, saved)
        whole.to(getattr(torch, dtype)).save_pretrained(folder)
        _finish(folder, tokenizer, record, merged=True)

    replace_folder(merged, write_merged)
    replace_folder(adapter, write_adapter)


def check_servable(adapter: Path) -> None:
    """Raise `EngineError` where vLLM would refuse the adapter: its rank, whole modules beside it, variants of LoRA."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    problems = [f"its rank {config['r']} is above {MOST_RANK}"] if config["r"] > MOST_RANK else []
    for key, plain in (("modules_to_save", None), ("bias", "none"), ("use_dora", False), ("rank_pattern", {})):
        if config.get(key, plain) not in (plain, None):
            problems.append(f"{key} is {config[key]!r}")
    if problems:
        raise EngineError(f"vLLM cannot serve the adapter in {adapter}: {'; '.join(problems)}.")


def replace_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder beside `target`, then put it in its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        fresh = scratch / "new"
        fresh.mkdir()
        write(fresh)
        if target.exists():
            target.rename(scratch / "old")
        fresh.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _finish(folder: Path, tokenizer: PreTrainedTokenizerBase, record: AdapterRecord, *, merged: bool) -> None:
    tokenizer.save_pretrained(str(folder))
    write_atomically(folder / "README.md", model_card(record, merged=merged))
    write_atomically(folder / RECORD, record.model_dump_json(indent=2) + "\n")
