"""The paper's eight implications (H.3), as advice for one task: whether each is about it, and what memloci knows beside it.

The experiment that tests an implication is the claim that it names (`memloci study ID`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from memloci.approx.readouts.ridge_exact import affine
from memloci.core.numbers import literal
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.task import Task
from memloci.theory import about_tasks
from memloci.theory.paper_rates import decay, power


@dataclass(frozen=True)
class Advice:
    claim: str  # the experiment that tests it
    implication: str
    applies: bool
    why: str  # of this task
    beside: str = ""  # what memloci proves or has found


Answer = tuple[bool, str, str]


@dataclass(frozen=True)
class _Implication:
    claim: str
    text: str
    answer: Callable[[Task], Answer]


def advice_for(task: Task) -> tuple[Advice, ...]:
    return tuple(
        Advice(implication.claim, implication.text, *implication.answer(task)) for implication in IMPLICATIONS
    )


def _nested(task: Task) -> Answer:
    if not task.K:
        return False, "no memory says where another one lies (K = 0)", ""
    why = f"K = {task.K} nested memories: {task.paper_layers} layers in the paper's construction"
    return (
        True,
        why,
        "compiled models take as many, or fewer where no chain of lags is so deep (route rotary)",
    )


def _unrelated(task: Task) -> Answer:
    if task.K:
        return False, f"memories are nested (K = {task.K})", ""
    if not task.M:
        return False, "nothing is recalled", ""
    if any(isinstance(recall, Occurrence) for recall in task.recalls):
        return False, "tokens are found by content, which the paper does not treat", ""
    layers = "one layer" if task.stationary else "two layers, the first of which computes the lags"
    wall = about_tasks.precision_wall(task)
    beside = (
        f"in floating point heads do not suffice at far lags: {wall}; depth and rotary heads do"
        if wall
        else ""
    )
    return True, f"no memory says where another one lies: {layers}", beside


def _complex_readout(task: Task) -> Answer:
    if _affine(task):
        return False, "the readout is affine, so no neurons are needed", ""
    return (
        True,
        "the readout is not affine, and E_FFN falls with the width",
        "what compiled readouts reach: memloci rates TASK --vary width --no-train",
    )


def _many_memories(task: Task) -> Answer:
    if task.M < 2:
        return False, f"{task.M or 'no'} memor{'y' if task.M == 1 else 'ies'}", ""
    return (
        True,
        f"{task.M} memories",
        "memories at fixed lags can share all heads, which no number of shared-out heads beats",
    )


def _drop_dp(task: Task) -> Answer:
    if task.stationary and task.M:
        return (
            True,
            "the same lags are read everywhere, whatever the input",
            "dpf heads are certified exactly, and run in linear time",
        )
    floor = about_tasks.affine_past(task) or about_tasks.capacity_bound(task)
    return False, "what is recalled depends on the input", floor or ""


def _keep_dp(task: Task) -> Answer:
    if any(isinstance(recall, Occurrence) for recall in task.recalls):
        return (
            True,
            "tokens are found by their content, as in language",
            about_tasks.capacity_bound(task) or "",
        )
    return False, "no token is found by its content", ""


def _tail(task: Task) -> str:
    kernels = [
        recall for recall in task.recalls if isinstance(recall, Convolution) and recall.horizon is None
    ]
    if not kernels:
        return "none"
    return "light" if all(decay(rho) > 0 for rho in kernels) else "heavy"


def _heavy(task: Task) -> Answer:
    tail = _tail(task)
    if tail != "heavy":
        return False, "no kernel has a heavy tail", ""
    betas = [power(recall) for recall in task.recalls if isinstance(recall, Convolution)]
    beside = "compiled lin heads hold power laws nearly as well; whether training finds them is claim 6b"
    return True, f"a kernel falls like z^-{literal(min(betas))}", beside


def _light(task: Task) -> Answer:
    if _tail(task) != "light":
        return (
            False,
            "not all kernels have light tails" if _tail(task) == "heavy" else "no kernel goes on for ever",
            "",
        )
    return True, "all kernels fall exponentially", ""


def _affine(task: Task) -> bool:
    forms = [formula.expression and affine(formula.expression) for formula in task.readouts]
    return all(form is not None for form in forms)


IMPLICATIONS = (
    _Implication("1a", "Memories that depend on each other: add layers.", _nested),
    _Implication("1b", "Unrelated memories: add heads and width to one layer.", _unrelated),
    _Implication("2a", "A complex readout: add width.", _complex_readout),
    _Implication("2b", "Many memories: add heads.", _many_memories),
    _Implication("3a", "Unrelated memories: the dot product can be dropped.", _drop_dp),
    _Implication("3b", "Language: keep the dot product.", _keep_dp),
    _Implication("4a", "Heavy tails: the log encoding.", _heavy),
    _Implication("4b", "Light tails: the lin encoding.", _light),
)
