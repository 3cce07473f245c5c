"""The claims, one file each: the paper's insights 1a to 4b (docs/theory.md, section 6), then our own."""

import importlib

from memloci.study.claim import Claim

CLAIMS = {
    "1a": "depth_for_language",
    "1b": "one_layer_for_unrelated",
    "2a": "width_for_readouts",
    "2b": "heads_for_memories",
    "3a": "no_dot_product_needed",
    "3b": "dot_product_for_language",
    "4a": "log_for_heavy_tails",
    "4b": "lin_for_light_tails",
    "5a": "precision_wall",
    "5b": "depth_breaks_the_wall",
    "5c": "rotary_breaks_the_wall",
    "6a": "capacity",
    "6b": "exponents_not_found",
    "7": "finite_samples",
    "8": "robustness",
    "9": "two_errors",
    "10": "smoothness_and_dimension",
}


def load_claim(name: str) -> Claim:
    return importlib.import_module(f"memloci.study.claims.{CLAIMS[name]}").CLAIM
