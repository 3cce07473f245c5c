"""What is typed after `memloci train`, as runs; and where curves go besides the report."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.train.spec import Run
from memloci.train.train import describe_task

TRACKERS = ("tensorboard",)

Curves = Mapping[str, Mapping[str, Sequence[Any]]]  # histories by name


def runs(
    task: str,
    architecture: dict[str, Any],
    training: dict[str, Any],
    settings: Sequence[str],
    seeds: Iterable[int],
) -> list[Run]:
    """One run per seed. `settings` are settings like "training.clip=0.5"."""
    fields = {"architecture": dict(architecture), "training": dict(training)}
    for text in settings:
        table, key, value = _setting(text)
        fields[table][key] = value
    described, _ = describe_task(task)
    compiled = fields["training"]["start"] == "compiled"
    return [
        Run(
            task=described,
            architecture=None if compiled else fields["architecture"],
            training={**fields["training"], "seed": seed},
        )
        for seed in seeds
    ]


def _setting(text: str) -> tuple[str, str, Any]:
    name, equals, value = text.partition("=")
    table, dot, key = name.strip().partition(".")
    if not (equals and dot and key.isidentifier() and table in ("architecture", "training")):
        raise BadInput(f"--set: needs training.NAME=VALUE or architecture.NAME=VALUE, found {shorten(text)}")
    return table, key, plain_value(value.strip())


def plain_value(text: str) -> Any:
    """A number, true, false or a list as TOML has it; anything else is a word."""
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def tracker(name: str | None, out: Path | None) -> Callable[[Curves], None]:
    """What writes curves, by name, for another program; refused before the training, not after."""
    if name is None:
        return lambda curves: None
    if name not in TRACKERS:
        raise BadInput(f"--track: unknown {shorten(name)}, use one of {', '.join(TRACKERS)}")
    if out is None:
        raise BadInput("--track: needs --out, the directory to write to")
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise BadInput('--track tensorboard: needs the extra: pip install "memloci[track]"') from None

    def write(curves: Curves) -> None:
        for label, history in curves.items():
            with SummaryWriter(str(out / "tensorboard" / label)) as file:
                _write(file, history)

    return write


def _write(file: Any, history: Mapping[str, Sequence[Any]]) -> None:
    for name in ("loss", "held_out", "err_mean_square", "err_sup"):
        for step, value in zip(history["step"], history[name], strict=True):
            if value is not None:
                file.add_scalar(name, value, step)
