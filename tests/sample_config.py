"""A benchmark's shipped config on its small sample: the same keys, few tasks, all models at one scripted address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripted_models import SAMPLES

from synth.load_config import load_config

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
BENCHMARKS = ("gaia", "webwalkerqa", "xbench_ds", "taskcraft")
SIZES = {"explore": 10, "dev": 1, "test": 3}
LEVEL_ONE = 3
"""Tasks of GAIA's level 1 in its sample, which are explored beside TaskCraft's."""
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def sample_values(name: str, address: str) -> dict[str, Any]:
    """The values of `configs/NAME.yaml` with what the sample changes; `address` is where the scripted models are."""
    values = load_config(CONFIGS / f"{name}.yaml").model_dump(mode="json")
    values["name"] = f"{name}-sample"
    values["suite"] |= SIZES
    options = values["suite"]["options"]
    for split, size in SIZES.items():
        for source in options[split]:
            source["data"] = str(SAMPLES / source["format"])
            if source.get("sample"):
                source["sample"] = size - LEVEL_ONE * (split == "explore")
    options["tools"] = {"search": "factbook", "cache_days": 0}
    for model in values["models"].values():
        if model is not None:
            model["base_url"] = address
    values["dataset"]["validation_share"] = 0.25
    values["train"] |= {"base": "smollm2-135m", "lora_modules": list(MODULES), "batch_size": 1, "accumulation": 1}
    values["train"] |= {"epochs": 1, "max_minutes": 1, "watch_every": None}
    return values
