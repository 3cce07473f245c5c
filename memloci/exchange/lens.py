"""A model in TransformerLens: the PyTorch module with a hook point at every step, under the usual names.

    model = load("folder")                         # files of `memloci export --to transformer-lens`
    y, cache = model.run_with_cache(x)             # x: real numbers, (batch, length, channels)
    cache["blocks.0.attn.hook_pattern"]            # hook_resid_pre, attn.hook_q, hook_k, hook_v, hook_z, mlp.hook_post, ...

`patch` replaces one activation at a time by its value on other inputs. It counts positions along the axis of positions;
the helpers of transformer_lens.patching take them from the last axis, which for real inputs holds the channels.
"""

from types import SimpleNamespace

import torch
from torch import nn
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.hook_points import HookPoint

from memloci.exchange import modeling


class LensModel(modeling.Transformer, HookedRootModule):
    """`run_with_cache`, `run_with_hooks` and hook points are TransformerLens' own."""

    def __init__(self, config: dict):
        super().__init__(config)
        for parent in list(self.modules()):
            for name, child in list(parent.named_children()):
                if name.startswith("hook_") and isinstance(child, nn.Identity):
                    setattr(parent, name, HookPoint())
        for block in self.blocks:
            block.attn.pairs = None  # hooks see all weights at once
        a = config["architecture"]
        self.cfg = SimpleNamespace(
            n_layers=a["layers"],
            n_heads=a["heads"],
            d_model=a["dim"],
            d_head=a["value_dim"],
            d_mlp=a["width"],
            attn_only=not a["width"],
            normalization_type=None,
            device="cpu",
            dtype=modeling.DTYPES[a["precision"]],
            default_prepend_bos=False,
            model_name="memloci",
        )
        self.setup()

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> torch.Tensor:
        """What biases have added to the stream: nothing, heads and neurons write none."""
        return torch.zeros_like(self.embed.b_E)

    def activations(self, x) -> ActivationCache:
        """The cache of one run, with TransformerLens' ways to look into it."""
        return ActivationCache(self.run_with_cache(x)[1], self)


def load(folder) -> LensModel:
    """The model of a folder; nothing in its files is executed."""
    return modeling.load(folder, LensModel)


def axes(name: str) -> tuple:
    """(position, head) axes of a hook's activation; None where it has no heads."""
    step = name.rpartition("hook_")[2]
    if step in ("pattern", "attn_scores"):
        return 2, 1  # positions of the query
    return 1, 2 if step in ("q", "k", "v", "z", "rot_q", "rot_k") else None


def patch(model: LensModel, x, cache, name: str, metric, *, positions=None, heads=None) -> torch.Tensor:
    """metric(output) on x with one activation taken from `cache`, for every position, head, or both.

    `positions`, `heads`: True for each in turn, None for all at once. The result has an axis for each that is True.
    """
    value = cache[name]
    position, head = axes(name)
    if heads and head is None:
        raise ValueError(
            f"{name} has no heads; those of a layer are apart in blocks.0.attn.hook_z, for example"
        )
    rows = range(value.shape[position]) if positions else [None]
    columns = range(value.shape[head]) if heads else [None]
    effects = torch.zeros(len(rows), len(columns), dtype=value.dtype)
    for i, t in enumerate(rows):
        for j, h in enumerate(columns):
            where = [slice(None)] * value.ndim
            if t is not None:
                where[position] = t
            if h is not None:
                where[head] = h

            def replace(activation, hook, where=tuple(where)):
                if activation.shape != value.shape:
                    raise ValueError(
                        f"{name} is {tuple(activation.shape)} here and {tuple(value.shape)} in the cache"
                    )
                activation = activation.clone()
                activation[where] = value[where]
                return activation

            with torch.no_grad():
                effects[i, j] = metric(model.run_with_hooks(x, fwd_hooks=[(name, replace)]))
    if positions:
        return effects if heads else effects.squeeze(1)
    return effects.squeeze(0) if heads else effects[0, 0]


def ablate(model: LensModel, x, name: str, index: tuple, value=0.0) -> torch.Tensor:
    """The output on x with activation[index] set to a number or a tensor."""

    def replace(activation, hook):
        activation = activation.clone()
        activation[index] = value
        return activation

    with torch.no_grad():
        return model.run_with_hooks(x, fwd_hooks=[(name, replace)])
