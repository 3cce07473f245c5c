"""`circuit.json`: what every slot, head and neuron of a compiled model is for, as a graph.

Format 2 adds `nodes`, `edges` and `irrelevant` to format 1, which had `slots`, `layers` and `readout`. A file of format 1
is still read: its graph is made from the weights beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloci.circuits.circuit import Circuit
from memloci.circuits.graph import Design, Edge, Graph, HeadDesign, Neurons, Node, graph_of
from memloci.core.errors import BadInput
from memloci.core.files import parse_json, read_bytes, reading
from memloci.core.specs import shorten
from memloci.model.store import read

CIRCUIT = "circuit.json"
FORMAT = 2
MAX_BYTES = 2**28
EFFECT = (
    "the most that an output moves when these nodes, or any set of them, are replaced at any positions by 0, by a mean, or by what "
    "they hold on other inputs of the task"
)


@dataclass(frozen=True)
class Effect:
    """What is proved of the nodes and neurons that the graph calls irrelevant."""

    bound: float = 0.0  # exactly: what they write meets weights of 0
    proof: str = "what they write meets weights that are 0, so nothing changes, rounding included"


def circuit_dict(circuit: Circuit, graph: Graph, effect: Effect | None = None) -> dict[str, Any]:
    """As JSON; slots are coordinates of the stream, in their order, unless the model is rotated."""
    variables = {slot: name for name, slot in circuit.variable_slots.items()}
    effect = effect or Effect()
    return {
        "format": FORMAT,
        "route": circuit.route,
        "slots": [{"name": slot, "variable": variables.get(slot)} for slot in circuit.slots],
        "layers": [
            {
                "heads": [
                    {"purpose": head.purpose, "reads": list(head.reads), "writes": list(head.writes)}
                    for head in layer.heads
                ],
                "neurons": _purposes(graph, l),
            }
            for l, layer in enumerate(circuit.layers)
        ],
        "readout": {
            "variables": list(circuit.readout.variables),
            "slots": [circuit.variable_slots[name] for name in circuit.readout.variables],
        },
        "nodes": [_node(node) for node in graph.nodes],
        "edges": [
            {
                "name": edge.name,
                "source": edge.source,
                "target": edge.target,
                "input": edge.input,
                "carries": list(edge.carries),
                "constant": edge.constant,
            }
            for edge in graph.edges
        ],
        "irrelevant": {
            "nodes": [node.name for node in graph.irrelevant],
            "neurons": {
                node.name: runs
                for node in graph.nodes
                if (runs := [[run.start, run.stop] for run in node.neurons if not run.relevant])
            },
            "bound": effect.bound,
            "means": EFFECT,
            "proof": effect.proof,
        },
    }


def _purposes(graph: Graph, l: int) -> list[dict[str, Any]]:
    runs = next((node.neurons for node in graph.nodes if node.name == f"m{l}"), ())
    return [
        {"purpose": run.purpose, "start": run.start, "stop": run.stop}
        for run in runs
        if run.purpose is not None
    ]


def _node(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"name": node.name, "hook": node.hook}
    if node.layer is not None:
        data |= {"layer": node.layer}
    if node.head is not None:
        data |= {"head": node.head, "purpose": node.purpose, "role": node.role, "offset": node.offset}
    data |= {
        "reads": {name: list(slots) for name, slots in node.reads.items()},
        "writes": list(node.writes),
        "relevant": node.relevant,
        "constant": node.constant,
    }
    if node.why:
        data |= {"why": node.why}
    if node.neurons:
        data |= {"neurons": [_run(run) for run in node.neurons]}
    return data


def _run(run: Neurons) -> dict[str, Any]:
    return {
        "start": run.start,
        "stop": run.stop,
        "purpose": run.purpose,
        "relevant": run.relevant,
        "reads": list(run.reads),
        "writes": list(run.writes),
    }


# -- back -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CircuitFile:
    """What a `circuit.json` says."""

    route: str
    graph: Graph
    effect: Effect


def read_circuit(directory: Path) -> CircuitFile:
    """The graph of a model directory; whatever is wrong with the file raises `BadInput`."""
    try:
        with reading(directory):
            data = parse_json(read_bytes(directory / CIRCUIT, MAX_BYTES))
        if not isinstance(data, Mapping) or "format" not in data:
            raise BadInput("not the circuit of a model: it has no key 'format'")
        if data["format"] == 1:
            return _from_weights(data, directory)
        if data["format"] != FORMAT:
            raise BadInput(
                f"format {shorten(data['format'])} is not known, this version reads 1 and {FORMAT}"
            )
        return _parsed(data)
    except BadInput as error:
        raise error.within(f"{directory}: {CIRCUIT}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{directory}: {CIRCUIT}: not what memloci writes: {shorten(str(error))}") from None


def _parsed(data: Mapping[str, Any]) -> CircuitFile:
    nodes = tuple(
        Node(
            _text(node["name"]),
            _whole(node.get("layer")),
            _whole(node.get("head")),
            _text(node["hook"]),
            _text_or_none(node.get("purpose")),
            _text_or_none(node.get("role")),
            _whole(node.get("offset")),
            {str(name): _texts(slots) for name, slots in node["reads"].items()},
            _texts(node["writes"]),
            bool(node["relevant"]),
            bool(node["constant"]),
            _text_or_none(node.get("why")),
            tuple(_run_of(run) for run in node.get("neurons", ())),
        )
        for node in data["nodes"]
    )
    edges = tuple(
        Edge(
            _text(edge["source"]),
            _text(edge["target"]),
            str(edge["input"]),
            _texts(edge["carries"]),
            bool(edge["constant"]),
        )
        for edge in data["edges"]
    )
    irrelevant = data["irrelevant"]
    return CircuitFile(
        _text(data["route"]),
        Graph(nodes, edges),
        Effect(float(irrelevant["bound"]), _text(irrelevant["proof"])),
    )


def _run_of(run: Mapping[str, Any]) -> Neurons:
    return Neurons(
        int(run["start"]),
        int(run["stop"]),
        _text_or_none(run["purpose"]),
        bool(run["relevant"]),
        _texts(run["reads"]),
        _texts(run["writes"]),
    )


def _from_weights(data: Mapping[str, Any], directory: Path) -> CircuitFile:
    """Of format 1, which named the slots and the purposes, but no edges."""
    slots = _texts([slot["name"] for slot in data["slots"]])
    heads = tuple(
        tuple(HeadDesign(_text(head["purpose"])) for head in layer["heads"]) for layer in data["layers"]
    )
    neurons = tuple(
        tuple(
            _text(run["purpose"])
            for run in layer["neurons"]
            for _ in range(int(run["stop"]) - int(run["start"]))
        )
        for layer in data["layers"]
    )
    model = read(directory).model
    if len(slots) != model.architecture.dim or len(heads) != model.architecture.layers:
        raise BadInput("it is the circuit of another model; compile again")
    return CircuitFile(_text(data["route"]), graph_of(model, Design(slots, heads, neurons)), Effect())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {shorten(value)}")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"expected a list of names, found {shorten(values)}")
    return tuple(map(_text, values))


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _whole(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError(f"expected a whole number, found {shorten(value)}")
    return value
