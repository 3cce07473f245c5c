"""Compiled models that the tests of exchange share: quick to make, one per kind of head."""

from functools import cache

import memloci as ml
from memloci.synthesize import Built

REASON = 'needs the extra torch: pip install "torch==2.13.0" "memloci[torch]"'

# name -> (task, route)
COMPILED = {
    "echo": ("echo", "rotary"),
    "pointer": ("pointer", "rotary"),
    "exponential": ("exponential", "one-layer-lin"),
    "power-law": ("power-law", "one-layer-log"),
    "ringing": ("ringing", "bias-table"),
    "nested-1": ("nested-1", "rotary"),
    "needle": ("needle", "match"),
}


@cache
def built(name: str) -> Built:
    task, route = COMPILED[name]
    return ml.compile(ml.load_task(task), route=route)
