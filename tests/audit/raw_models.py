"""Raw models: random weights of every architecture that certificates follow, which know nothing of the task."""

import numpy as np

from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from tests.certify.cases import drawn_model

RAW = "raw weights"
KINDS = (
    ("dpf", "lin", "infinite"),
    ("dpf", "log", "infinite"),
    ("dpf", "t5", "infinite"),
    ("dpf", "rope", "infinite"),
    ("dp", "rope", "softmax"),
    ("dp", "lin", "none"),
    ("tmx", "lin", "none"),
    ("tmx", "log", "none"),
    ("dp", "lin", "softmax"),
)


def raw_model(rng: np.random.Generator, channels: int, outputs: int) -> Transformer:
    attention, encoding, normalisation = KINDS[int(rng.integers(len(KINDS)))]
    layers = 2 if normalisation == "infinite" and rng.random() < 0.4 else 1
    architecture = Architecture(
        layers=layers,
        heads=int(rng.integers(1, 4)),
        width=3 if layers == 1 and rng.random() < 0.5 else 0,
        attention=attention,
        encoding=encoding,
        normalisation=normalisation,
        dim=4,
        key_dim=4,
        value_dim=2,
        window=16 if normalisation == "infinite" and encoding in ("rope", "t5") else None,
        precision=str(rng.choice(["float32", "float64"])),
        buckets=8,
        max_distance=16,
    )
    return drawn_model(architecture, channels, outputs, seed=int(rng.integers(2**31)))
