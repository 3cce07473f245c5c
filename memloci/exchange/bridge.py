"""A model behind TransformerLens' bridge, the way of TransformerLens 4 into models of every origin.

    model = load("folder")                         # files of `memloci export --to transformer-lens`
    y, cache = model.run_with_cache(x)             # x: real numbers, (batch, length, channels)

Hooks have the usual names, and the bridge's own beside them (`blocks.0.hook_in`, ...). lens.py has the same model without
the bridge, which is lighter.
"""

import warnings
from types import SimpleNamespace

from torch import nn
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
from transformer_lens.model_bridge.generalized_components import BlockBridge
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from memloci.exchange import modeling

NAME = "MemlociTransformer"
UNBOUNDED = 2**31 - 1  # positions: the encodings have no end


class Outer(nn.Module):
    """The same modules under names that are no slots of the bridge; real numbers arrive as `inputs_embeds`."""

    def __init__(self, model: modeling.Transformer):
        super().__init__()
        self.tok_embed, self.layers, self.head = model.embed, model.blocks, model.unembed
        self.ln_out = model.ln_final
        self.config = model.config

    def forward(self, inputs_embeds=None, **ignored) -> SimpleNamespace:
        x = inputs_embeds
        if x is None or not x.is_floating_point():
            raise ValueError("the inputs are real numbers of shape (batch, length, channels), not tokens")
        X = self.tok_embed(x.to(next(self.head.parameters()).dtype))
        if hasattr(self.tok_embed, "positions") and self.config["architecture"]["encoding"] in (
            "sin",
            "learned",
        ):
            X = X + self.tok_embed.positions(x.shape[1])[None]
        for block in self.layers:
            X = block(X)
            X = X[0] if isinstance(X, tuple) else X
        return SimpleNamespace(logits=self.head(X if self.ln_out is None else self.ln_out(X)))


def _give_points(part: GeneralizedComponent, module: nn.Module, names: tuple) -> None:
    """Hook points in place of the module's, which the bridge's part then has too."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Identity) and name.startswith(names):
            point = HookPoint()
            setattr(module, name, point)
            setattr(part, name, point)


class Steps(GeneralizedComponent):
    """A part whose own steps have hook points: hook_q, hook_pattern, hook_z, hook_pre, hook_post, ..."""

    def set_original_component(self, original_component: nn.Module) -> None:
        super().set_original_component(original_component)
        _give_points(self, original_component, ("hook_",))

    def forward(self, *args, **kwargs):
        assert self.original_component is not None
        return self.hook_out(self.original_component(self.hook_in(args[0]), *args[1:], **kwargs))


class Blocks(BlockBridge):
    """A block; where it starts and ends the bridge has hooks of its own."""

    hook_aliases = {"hook_resid_pre": "hook_in", "hook_resid_post": "hook_out"}

    def set_original_component(self, original_component: nn.Module) -> None:
        super().set_original_component(original_component)
        _give_points(self, original_component, ("hook_attn_out", "hook_resid_mid", "hook_mlp_out"))


class Adapter(ArchitectureAdapter):
    """Which part of the model stands in which slot of the bridge."""

    supports_hf_output_attentions = False
    supports_kv_cache = False
    supports_generation = False
    supports_causal_loss = False
    supports_compatibility_mode = False

    def __init__(self, cfg) -> None:
        super().__init__(cfg)
        parts = {
            "attn": Steps(name="attn", config=cfg),
            "mlp": Steps(name="mlp", config=cfg, optional=True),
        }
        self.component_mapping = {
            "embed": Steps(name="tok_embed", config=cfg),
            "blocks": Blocks(name="layers", config=cfg, submodules=parts),
            "unembed": Steps(name="head", config=cfg),
        }


def bridge(model: modeling.Transformer):
    """A TransformerBridge around a model, which is changed in place."""
    a = model.config["architecture"]
    for block in model.blocks:
        block.attn.pairs = None  # hooks see all weights at once
    cfg = TransformerBridgeConfig(
        d_model=a["dim"],
        d_head=a["value_dim"],
        n_layers=a["layers"],
        n_heads=a["heads"],
        d_mlp=a["width"],
        n_ctx=UNBOUNDED,
        d_vocab=model.config["channels"],
        d_vocab_out=model.config["outputs"],
        act_fn="relu",
        normalization_type=None,
        attn_only=not a["width"],
        default_prepend_bos=False,
        architecture=NAME,
    )
    ArchitectureAdapterFactory.register_adapter(NAME, Adapter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of aliases for parts that this kind of model does not have
        return build_bridge_from_module(Outer(model), NAME, tl_config=cfg, model_name="memloci").eval()


def load(folder):
    """The bridge around the model of a folder; nothing in its files is executed."""
    return bridge(modeling.load(folder))
