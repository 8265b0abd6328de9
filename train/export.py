"""Writing a finished training: the adapter with its record, and the merged model that any engine can serve."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from providers.files import write_atomically
from router.adapter import RECORD, AdapterRecord, load_merged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def export(model: Any, tokenizer: PreTrainedTokenizerBase, record: AdapterRecord, adapter: Path, merged: Path) -> None:
    """Write `merged` and then `adapter`, each whole or not at all; the adapter's folder is what says "finished".

    `model` is a PeftModel. Both folders carry tokenizer, chat template and record.
    """

    def write_adapter(folder: Path) -> None:
        model.save_pretrained(folder)
        _finish(folder, tokenizer, record)

    def write_merged(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            model.save_pretrained(scratch)
            whole, _ = load_merged(record.base, Path(scratch))
        whole.to(model.get_base_model().dtype).save_pretrained(folder)
        _finish(folder, tokenizer, record)

    replace_folder(merged, write_merged)
    replace_folder(adapter, write_adapter)


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


def _finish(folder: Path, tokenizer: PreTrainedTokenizerBase, record: AdapterRecord) -> None:
    tokenizer.save_pretrained(str(folder))
    readme = folder / "README.md"
    readme.unlink(missing_ok=True)
    write_atomically(folder / RECORD, record.model_dump_json(indent=2) + "\n")
