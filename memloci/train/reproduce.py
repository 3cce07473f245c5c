"""What gives a run again: its settings beside the defaults, the command, the call in Python."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memloci.model.architecture import Architecture
from memloci.train.spec import DATA_KINDS, Run, Training, default_length

OPTIONS_OF_ARCHITECTURE = ("layers", "heads", "width", "attention", "encoding")  # of `memloci train`
OPTIONS_OF_TRAINING = ("steps", "batch", "rate", "start", "tolerance")


@dataclass(frozen=True)
class Reproduction:
    """How runs that differ in numbers only come about again."""

    chosen: dict[str, str]  # settings of training that are not as by default
    usual: dict[str, str]
    code: tuple[str, ...]  # the command, where one serves all of the runs, and the call in Python


def reproduction(runs: Sequence[Run]) -> Reproduction:
    run, seeds = runs[0], [run.training.seed for run in runs]
    chosen, usual = dict[str, str](), dict[str, str]()
    for name, value, default in settings(run):
        (usual if value == default else chosen)[name] = setting_text(value)
    together = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    command_line = (command(run, len(seeds)),) if together else ()
    return Reproduction(chosen, usual, (*command_line, python_call(run)))


def settings(run: Run) -> list[tuple[str, Any, Any]]:
    """(name, value, default) of the settings of training, seeds aside."""
    fields = {name: field.default for name, field in Training.model_fields.items() if name != "seed"}
    fields |= {"length": default_length(run.task)}
    if run.task.get("kind") == "text":
        fields["loss"] = "cross-entropy"
    return [(name, getattr(run.training, name), default) for name, default in fields.items()]


def setting_text(value: Any) -> str:
    return "none" if value is None else str(value)


def command(run: Run, seeds: int = 1) -> str:
    """What gives these runs again, in a terminal."""
    words = ["memloci", "train", _source(run), "--out", "DIR"]
    a = run.architecture
    sizes = {} if a is None else _chosen(a)
    if a is not None:
        for name in OPTIONS_OF_ARCHITECTURE:
            words += [f"--{name}", str(getattr(a, name))]
    for name, value in sizes.items():
        if name not in OPTIONS_OF_ARCHITECTURE:
            words += ["--set", f"architecture.{name}={setting_text(value)}"]
    for name, value, default in settings(run):
        if value != default:
            has_option = name in OPTIONS_OF_TRAINING
            words += (
                [f"--{name}", str(value)]
                if has_option
                else ["--set", f"training.{name}={setting_text(value)}"]
            )
    words += ["--seed", str(run.training.seed)] if run.training.seed else []
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    return _wrapped([shlex.quote(word) for word in words])


def _chosen(a: Architecture) -> dict[str, Any]:
    """The sizes and switches that are not as by default."""
    return {name: value for name, value in a.to_dict().items() if value != type(a).model_fields[name].default}


def _source(run: Run) -> str:
    return str(run.task.get("path") or "data.npz") if run.task.get("kind") in DATA_KINDS else "task.toml"


def _wrapped(words: Sequence[str], width: int = 72) -> str:
    """One command over several lines, an option and its value on the same one."""
    lines = [""]
    for k, word in enumerate(words):
        new = (
            word.startswith("--") and len(lines[-1]) + len(word) + len("".join(words[k + 1 : k + 2])) > width
        )
        if new:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def python_call(run: Run) -> str:
    """What gives this run again, in Python."""
    lines = ["import memloci as ml", "", "fit = ml.train(", f"    {_source(run)!r},"]
    if run.architecture is not None:
        lines.append("    ml.Architecture(")
        lines += [f"        {k}={v!r}," for k, v in _chosen(run.architecture).items()]
        lines.append("    ),")
    for name, value, default in settings(run):
        if value != default:
            lines.append(f"    {name}={value!r},")
    lines.append(f"    seed={run.training.seed},")
    return "\n".join([*lines, ")"])
