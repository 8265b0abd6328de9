"""What the layers below the adapters give, computed once: they learn nothing, so every epoch would repeat it.

A row's states are computed alone, when it is first asked for, so they do not depend on the batches: a training that was
continued has the same ones. They take `width` numbers per token, two bytes each in bfloat16.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from providers.errors import EngineError
from train.marks import collate_examples, marks_loss

if TYPE_CHECKING:
    import torch

LOWER_PREFIX, LOWER_REST = "lower_prefix", "lower_rest"
"""States in the places of a batch's tokens: shapes (1, shared tokens, width) and (rows, longest rest, width)."""


class Lower:
    """Batches of marks that carry the states which enter layer `first`, kept by row."""

    def __init__(self, model: Any, first: int, *, share: bool = True) -> None:
        """`model` is a transformers causal language model, without adapters below `first`."""
        self._model = model
        self._first = first
        self._share = share
        self._kept: dict[tuple[int, ...], torch.Tensor] = {}

    def collate(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """As `collate_examples`, with the states of its tokens."""
        inputs = collate_examples(examples, share=self._share)
        states = [self._states(tuple(example["input_ids"])) for example in examples]
        shared, longest = inputs["prefix"].shape[1], inputs["input_ids"].shape[1]
        rest = states[0].new_zeros(len(states), longest, states[0].shape[1])
        for place, state in enumerate(states):
            rest[place, : len(state) - shared] = state[shared:]
        return {**inputs, LOWER_PREFIX: states[0][None, :shared], LOWER_REST: rest}

    def loss(
        self, model: Any, inputs: Mapping[str, torch.Tensor], yes: int, no: int, *, listwise: bool = False
    ) -> torch.Tensor:
        """`marks_loss` by the layers from `first` on alone, where the batch has states, else by all of them."""
        if LOWER_REST not in inputs:
            return marks_loss(model, inputs, yes, no, listwise=listwise)
        states = {"prefix": inputs[LOWER_PREFIX], "input_ids": inputs[LOWER_REST]}
        with _upper(model, self._first) as upper:
            return marks_loss(upper, {**inputs, **states}, yes, no, listwise=listwise)

    def _states(self, tokens: tuple[int, ...]) -> torch.Tensor:
        import torch

        if tokens not in self._kept:
            lower = _section(self._model, 0, self._first)
            lower.norm = torch.nn.Identity()
            with torch.no_grad():
                asked = torch.tensor([tokens], device=self._model.device)
                self._kept[tokens] = lower(input_ids=asked, use_cache=False).last_hidden_state[0].cpu()
        return self._kept[tokens]


class _Upper:
    """The part of a causal language model that `router.marks.mark_scores` asks for."""

    def __init__(self, model: Any, first: int) -> None:
        self.base_model = _section(model, first, None)
        self.get_output_embeddings = model.get_output_embeddings


@contextmanager
def _upper(model: Any, first: int) -> Iterator[_Upper]:
    """The layers from `first` on as a model of their own, counted from 0 meanwhile: that is their place in a cache."""
    upper = _Upper(model, first)
    numbered = [module for module in upper.base_model.layers.modules() if hasattr(module, "layer_idx")]
    for module in numbered:
        module.layer_idx -= first
    try:
        yield upper
    finally:
        for module in numbered:
            module.layer_idx += first


def _section(model: Any, first: int, end: int | None) -> Any:
    """The model's body with some of its layers; weights are shared, the model is left as it is."""
    import torch

    body = model.base_model
    layers = getattr(body, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList) or not hasattr(body, "norm"):
        raise EngineError(
            f"{type(body).__name__} keeps its layers in a way that train.cache_lower does not know; set it to false."
        )
    section, config = copy.copy(body), copy.copy(body.config)
    section._modules = dict(body._modules)
    section.layers = torch.nn.ModuleList(list(layers)[first:end])
    config.num_hidden_layers = len(section.layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[first:end]
    section.config = config
    return section
