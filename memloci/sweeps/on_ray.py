"""The driver on a Ray cluster: groups of runs as tasks on its nodes, and one process that writes the store.

    driver: claim -> task -> what its trainer would tell the store, told over the network -> store

Nodes share no files with the driver and know no store. A task streams back checkpoints, results and failures as JSON
and bytes, and the driver, who holds the claim, records them; so all that is promised of the store holds here too.
What a dead worker or node had goes back into the queue with its last checkpoint. Ray itself would retry for ever,
from the start, and with the run that kills its worker among innocent ones: it retries nothing here.
"""

import json
import os
import queue
import re
import secrets
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

from memloci import __version__
from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.sweeps.local import ONE_THREAD, SHARED, Progress, supervise
from memloci.sweeps.store import ClaimedRuns, Outcome, Store, StoreTrouble
from memloci.sweeps.worker import Job, Trainer, load_engine

KNOCK = 5.0  # seconds for an address to answer; Ray itself tries for two minutes
Message = tuple[str, list[bytes]]  # JSON of [what, details], and what JSON cannot hold


def run(
    job: Job,
    workers: int | None = None,
    progress: Progress = lambda text, done: None,
    address: str | None = None,
) -> None:
    """Work on a sweep until it has no open runs, with at most `workers` tasks at once; Ctrl-C keeps everything."""
    ray = _import_ray(address)
    with Store(job.store) as store:
        if not store.counts(job.sweep).open:
            return
        # Ray prints what dies to standard output, where others expect the answer.
        with (
            redirect_stdout(sys.stderr),
            _cluster(ray, address, workers),
            Fleet(job, store, ray, workers) as fleet,
        ):
            supervise(job, store, fleet, progress)


# The cluster.


def _import_ray(address: str | None) -> Any:
    if address is None:
        # It listens to this machine alone, unless this variable of Ray's is set to 1, which also works on Linux; and
        # nobody comes in without the token. Ray would make one too, and leave it in a file that others may read.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # after the environment, which it reads now
    except ImportError:
        raise BadInput('--engine ray: needs the extra: pip install "memloci[ray]"') from None
    return ray


@contextmanager
def _cluster(ray: Any, address: str | None, workers: int | None) -> Iterator[None]:
    """One that is there, or a new one on this machine that ends with the block."""
    if ray.is_initialized():  # by the program that calls us, whose it stays
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with _silence():
            if address is None:
                # Without "local" Ray takes any cluster that is left on this machine.
                ray.init(address="local", include_dashboard=False, num_cpus=workers, **quiet)
            else:
                _knock(address)
                ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise BadInput(_unreachable(address, error)) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _silence() -> Iterator[None]:
    """Ray's compiled part complains to standard error once a second; one line says it, afterwards."""
    sys.stderr.flush()
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _knock(address: str) -> None:
    if address == "auto":
        return
    if not (host_and_port := re.fullmatch(r"\[?([^/\[\]]+)\]?:(\d{1,5})", address)):
        raise ValueError('an address is HOST:PORT, as `ray start --head` tells it, or "auto"')
    socket.create_connection((host_and_port[1], int(host_and_port[2])), KNOCK).close()


def _unreachable(address: str | None, error: Exception) -> str:
    cause = _line(str(error))
    if address is None:
        return f"--engine ray: no cluster could be started here: {cause}"
    hint = "this machine must be one of its nodes and have its token, see docs/sweeps.md"
    return f"--address {shorten(address)}: cannot join the cluster: {cause}; {hint}"


def _line(text: str) -> str:
    """Ray explains at length."""
    return textwrap.shorten(text, 200, placeholder=" ...")


# On a node.


def make_task() -> Callable[..., Iterator[Message]]:
    """What Ray runs. It travels as code, not as a name, so that a node without memloci can say so."""

    def task(version: str, job: str, claim: str, states: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
        import json
        import socket

        refuse = lambda why: (json.dumps(["refuse", {"why": f"node {socket.gethostname()}: {why}"}]), [])
        try:
            import memloci

            if memloci.__version__ != version:
                yield refuse(f"has memloci {memloci.__version__}, the driver {version}; install one on all")
                return
            from memloci.sweeps.on_ray import serve

            messages = serve(job, claim, states)
        except ImportError as error:
            yield refuse(f"memloci {version} cannot be imported: {error}")
            return
        yield from messages

    return task


def serve(job: str, claim: str, states: list[bytes]) -> Iterator[Message]:
    """Train what was claimed; tell, in order, what is to be recorded."""
    _share_cores()
    described, mail = Job(**json.loads(job)), Mail()
    trainer = Trainer(described, "", mail, load_engine(described.engine))
    return _messages(trainer, mail, _read_claim(claim, states))


def _messages(trainer: Trainer, mail: "Mail", claim: ClaimedRuns) -> Iterator[Message]:
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(trainer.train, claim)
        training.add_done_callback(lambda _: mail.queue.put(None))
        while True:
            try:
                message = mail.queue.get(timeout=trainer.job.beat)
            except queue.Empty:
                message = _message("part", part=trainer.part)
            if message is None:
                break
            yield message
        training.result()  # what nobody foresaw is raised


def _share_cores() -> None:
    """A task has one core. Read when the engine is imported, so this is in time."""
    os.environ.update(SHARED)
    flags = os.environ.get("XLA_FLAGS", "")
    if ONE_THREAD not in flags:  # the process may have had a task before
        os.environ["XLA_FLAGS"] = f"{ONE_THREAD} {flags}".strip()


class Mail:
    """Records as a trainer knows them, sent instead of written."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()

    def save_checkpoints(self, owner: str, step: int, states: Mapping[str, bytes]) -> bool:
        self.queue.put(_message("save", list(states.values()), step=step, keys=list(states)))
        return True  # whoever has lost the lease is ended by the driver

    def finish(self, owner: str, outcomes: Sequence[Outcome], cost: float | None = None) -> int:
        results = [(outcome.key, dict(outcome.record), outcome.history) for outcome in outcomes]
        weights = [outcome.weights for outcome in outcomes]
        self.queue.put(_message("finish", weights, results=results, cost=cost))
        return len(results)

    def fail(self, owner: str, keys: Sequence[str], error: str) -> None:
        self.queue.put(_message("fail", keys=list(keys), error=error))

    def note(self, owner: str, keys: Sequence[str], text: str) -> None:
        self.queue.put(_message("note", keys=list(keys), text=text))


def _message(what: str, blobs: Sequence[bytes] = (), **details: Any) -> Message:
    return json.dumps([what, details]), list(blobs)


def _write_claim(claim: ClaimedRuns) -> Message:
    """Whole numbers, floats and words come back from JSON as they were, and so do the keys made of them."""
    details = {"program": claim.program, "configs": claim.configs, "kept": list(claim.states)}
    return json.dumps(details), list(claim.states.values())


def _read_claim(text: str, states: list[bytes]) -> ClaimedRuns:
    details = json.loads(text)
    return ClaimedRuns(
        details["program"], details["configs"], dict(zip(details["kept"], states, strict=True))
    )


# In the driver.


@dataclass(frozen=True)
class FinishedRun:
    key: str
    record: dict[str, Any]
    history: dict[str, list[Any]]
    weights: bytes


@dataclass
class Flight:
    """A task under way."""

    stream: Any  # of references to messages
    part: float = 0.0


class Fleet:
    """The tasks of one driver, by the owner in whose name each has claimed; none outlives the `with` block."""

    def __init__(self, job: Job, store: Store, ray: Any, workers: int | None = None):
        self.job, self.store, self.ray, self.workers = job, store, ray, workers
        # A process grows with every program that it compiles: after so many tasks Ray starts another.
        options = {"num_cpus": 1, "max_retries": 0, "max_calls": job.programs, "num_returns": "streaming"}
        self.task = ray.remote(**options)(make_task())
        self.flights: dict[str, Flight] = {}
        self.beaten = time.monotonic()

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        for owner in list(self.flights):
            self._recall(owner)
            with suppress(StoreTrouble):  # the next driver finds that the owner is dead
                self.store.release(owner)

    @property
    def owners(self) -> set[str]:
        return set(self.flights)

    def fill(self, waiting: int) -> None:
        if not waiting:
            return
        most = self._most()
        while len(self.flights) < most and self._start(most):
            pass

    def _most(self) -> int:
        """As many as there are cores now, but one at least: some clusters grow when there is something to do."""
        cores = int(self.ray.cluster_resources().get("CPU", 0))
        return max(1, min(cores, self.workers or cores))

    def _start(self, most: int) -> bool:
        owner = secrets.token_hex(8)
        claim = self.store.claim(self.job.sweep, owner, most=self.job.group, workers=most)
        if claim is None:
            return False
        stream = self.task.remote(__version__, self.job.to_json(), *_write_claim(claim))
        self.flights[owner] = Flight(stream)
        return True

    def bury(self) -> None:
        """Record what has come in, take back what the dead had, and give a sign of life for the others."""
        while owners := self._ready_owners():
            for owner in owners:
                self._hear(owner)
        if time.monotonic() - self.beaten > self.job.beat:
            self._feel()
            self.store.beat_for({owner: flight.part for owner, flight in self.flights.items()})
            self.beaten = time.monotonic()

    def _feel(self) -> None:
        """Without its own node a driver waits for ever: Ray hands out tasks through it."""
        this_node = self.ray.get_runtime_context().get_node_id()
        if not any(node["Alive"] for node in self.ray.nodes() if node["NodeID"] == this_node):
            raise BadInput("the Ray node of this machine has died; finished runs are saved, start again")

    def _ready_owners(self) -> list[str]:
        if not self.flights:
            return []
        owners = {flight.stream: owner for owner, flight in self.flights.items()}
        ready, _ = self.ray.wait(list(owners), num_returns=len(owners), timeout=0)
        return [owners[stream] for stream in ready]

    def _hear(self, owner: str) -> None:
        errors = self.ray.exceptions
        try:
            text, blobs = self.ray.get(next(self.flights[owner].stream))
        except StopIteration:
            del self.flights[owner]
            self.store.release(owner)
        except errors.RayTaskError as error:  # no fault of the runs, which are caught where they are trained
            raise RuntimeError(f"a task failed on its node: {error}") from None
        except errors.RayError as error:
            del self.flights[owner]
            self.store.reclaim(owner, _line(f"{type(error).__name__}: {error}"), self.job.most_deaths)
        else:
            what, details = json.loads(text)
            self._record(owner, what, details, blobs)

    def _record(self, owner: str, what: str, details: dict[str, Any], blobs: list[bytes]) -> None:
        match what:
            case "part":
                self.flights[owner].part = details["part"]
            case "save":
                states = dict(zip(details["keys"], blobs, strict=True))
                if not self.store.save_checkpoints(owner, details["step"], states):
                    self._recall(owner)  # others have these runs now
            case "finish":
                pairs = zip(details["results"], blobs, strict=True)
                results = [
                    FinishedRun(key, record, history, weights) for (key, record, history), weights in pairs
                ]
                self.store.finish(owner, results, details["cost"])
            case "fail":
                self.store.fail(owner, details["keys"], details["error"])
            case "note":
                self.store.note(owner, details["keys"], details["text"])
            case "refuse":
                raise BadInput(details["why"])

    def _recall(self, owner: str) -> None:
        stream = self.flights.pop(owner).stream
        with suppress(self.ray.exceptions.RayError):
            self.ray.cancel(stream, force=True)
