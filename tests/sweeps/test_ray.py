"""A cluster that loses nodes, workers and drivers: every run is recorded once, with the result it would have had."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import memloci as ml
from memloci.core.errors import BadInput
from memloci.sweeps import local, on_ray
from memloci.sweeps.store import Store
from memloci.sweeps.worker import Job

from .cases import FAKE, ROOT, end, make_run, make_runs, wait_until
from .fake import CRASH, DIVERGE, execute
from .test_kills import EVERY_RECORDING

DRIVER = (
    "import json, sys; from memloci.sweeps.on_ray import run; from memloci.sweeps.worker import Job; "
    "run(Job(**json.loads(sys.argv[1])), address=sys.argv[2])"
)
# Ray takes 127.0.0.1 for a mistake, and replaces it by the address that others see.
HEAD, NODE = "127.0.0.2", "127.0.0.3"
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere Ray has one node, and loopback one address"
)


class Cluster:
    """Two nodes, each a session of processes, that let nobody in who does not know the token."""

    def __init__(self, folder: str):
        self.folder = Path(folder)
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(ROOT),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        head = ["--head", "--port=0", "--include-dashboard=false", f"--temp-dir={self.folder}"]
        self._start(HEAD, *head)
        log = self.folder / f"{HEAD}.log"
        self.address = re.findall(rf"{re.escape(HEAD)}:\d+", log.read_text())[0]
        self._start(NODE, f"--address={self.address}")

    def _start(self, address: str, *options: str) -> None:
        program = Path(sys.executable).with_name("ray")
        log = self.folder / f"{address}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [program, "start", f"--node-ip-address={address}", "--num-cpus=2", "--block", *options],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        wait_until(lambda: process.poll() is not None or "--block" in log.read_text())
        assert process.poll() is None, log.read_text()

    def drive(self, job: Job, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, job.to_json(), self.address],
            cwd=ROOT,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def at_work(self, node: int) -> list[int]:
        """Processes that train."""
        title = lambda pid: Path(f"/proc/{pid}/cmdline").read_bytes()
        found = []
        for pid in processes_of(self.processes[node].pid):
            with suppress(OSError):  # it has just ended
                found += [pid] * title(pid).startswith(b"ray::task")
        return found

    def kill(self, node: int) -> None:
        """As if the plug were pulled."""
        session = self.processes[node].pid
        while pids := processes_of(session):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.processes[node].poll()  # or it stays a zombie
            time.sleep(0.01)

    def end(self) -> None:
        for node, process in enumerate(self.processes):
            self.kill(node)
            process.wait()


def processes_of(session: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, *_, sid = path.read_text().rpartition(")")[2].split()[:4]
            if int(sid) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def cluster():
    # Not pytest's own directory: the names of sockets have a hundred letters at most.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        made = Cluster(folder)
        try:
            made.start()
            yield made
        finally:
            made.end()


def owners(store: Store) -> set[str]:
    return {name for (name,) in store.db.execute("SELECT name FROM owners")}


def kept(store: Store) -> int:
    return store.db.execute("SELECT count(*) FROM checkpoints").fetchone()[0]


@pytest.fixture
def intruder(cluster, tmp_path):
    """Somebody with another token, who takes a while to give up."""
    with Store(tmp_path / "theirs.sqlite") as store:
        job = Job(str(store.path), store.enqueue("s", [make_run()]), FAKE)
    driver = cluster.drive(job, RAY_AUTH_TOKEN=secrets.token_hex(16))
    yield driver
    end(driver)


@pytest.mark.slow
@on_linux
def test_a_sweep_survives_the_death_of_a_node_of_a_worker_and_of_its_driver(cluster, intruder, tmp_path):
    runs = make_runs(range(8), batches=range(1, 5), steps=200, noise=50.0)
    faulty = [make_run(seed, batch=9) for seed in (CRASH, DIVERGE)]
    with Store(tmp_path / "runs.sqlite") as store:
        store.db.executescript(EVERY_RECORDING)
        job = Job(str(store.path), store.enqueue("s", runs + faulty), FAKE, group=4, checkpoint=0.2, beat=0.2)
        driver = cluster.drive(job)
        alive = lambda: driver.poll() is None or pytest.fail(driver.communicate()[1].decode())
        try:
            wait_until(lambda: alive() and cluster.at_work(0) and cluster.at_work(1) and kept(store))
            before = owners(store)
            cluster.kill(1)
            wait_until(lambda: alive() and kill_one(cluster.at_work(0)))
            # Nobody waits for the dead any more, and somebody does their work.
            wait_until(lambda: alive() and not before & owners(store) and cluster.at_work(0))
        finally:
            end(driver)
        done = [row for row in store.rows() if row["status"] == "done"]
        wait_until(lambda: not cluster.at_work(0))  # tasks end with their driver
        driver = cluster.drive(job)
        try:
            assert driver.wait(120) == 0, driver.communicate()[1].decode()
        finally:
            end(driver)
        assert len(done) < len(runs) and all(row in store.rows() for row in done)
        assert max(row["attempts"] for row in store.rows()) > 1
        check_results(store, runs, faulty)
    check_refused(intruder, tmp_path / "theirs.sqlite")


def kill_one(pids: list[int]) -> bool:
    for pid in pids[:1]:
        os.kill(pid, signal.SIGKILL)
    return bool(pids)


def check_refused(driver, path):
    complaint = driver.communicate(timeout=120)[1].decode()
    assert driver.returncode == 1 and "cannot join the cluster" in complaint.splitlines()[-1]
    assert "gcs_client" not in complaint  # where Ray's own complaints come from
    with Store(path) as store:
        assert [row["attempts"] for row in store.rows()] == [0]


def check_results(store, runs, faulty):
    rows = {row["key"]: row for row in store.rows()}
    recorded = [key for (key,) in store.db.execute("SELECT key FROM recordings")]
    crash, diverge = (rows[run.key] for run in faulty)
    assert crash["status"] == "failed" and crash["error"] == "RuntimeError: the engine broke"
    assert diverge["record"]["status"] == "diverged" and store.history(diverge["key"])["loss"] == [1.0, None]
    assert sorted(recorded) == sorted(rows.keys() - {crash["key"]})  # each exactly once
    for batch in range(1, 5):
        for outcome in execute([run for run in runs if run.training.batch == batch]):
            assert rows[outcome.key]["status"] == "done" and rows[outcome.key]["record"] == outcome.record
            assert store.history(outcome.key) == outcome.history
            assert store.weights(outcome.key) == outcome.weights
    for table in ("checkpoints", "owners"):
        assert store.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


# Without a cluster.


def answers(job: Job, runs, version=ml.__version__) -> list:
    """What a node says to a claim on these runs."""
    with Store(job.store) as store:
        claim = store.claim(job.sweep, "me", most=len(runs))
    assert claim is not None
    return [
        (*json.loads(text), blobs)
        for text, blobs in on_ray.make_task()(version, job.to_json(), *on_ray._write_claim(claim))
    ]


@pytest.fixture
def make_job(tmp_path):
    def make(runs, **settings):
        with Store(tmp_path / "runs.sqlite") as store:
            return Job(str(store.path), store.enqueue("s", runs), FAKE, **settings)

    return make


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """A task sets flags for its process."""
    told = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    for name in ("XLA_FLAGS", *local.SHARED, *told):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        if not os.environ[name]:
            monkeypatch.delenv(name)


def test_a_node_tells_what_is_to_be_recorded(make_job):
    runs = make_runs(range(2), steps=40)
    said = answers(make_job(runs, checkpoint=0.0), runs)
    assert [what for what, *_ in said] == ["save"] * 4 + ["finish"]
    (_, details, weights), expected = said[-1], execute(runs)
    assert details["results"] == [[o.key, o.record, o.history] for o in expected] and details["cost"] > 0
    assert weights == [outcome.weights for outcome in expected]
    assert local.ONE_THREAD in os.environ["XLA_FLAGS"] and os.environ["OMP_NUM_THREADS"] == "1"


def test_a_node_tells_how_far_it_is(make_job):
    runs = [make_run(steps=40, noise=100.0)]
    parts = [
        details["part"] for what, details, _ in answers(make_job(runs, beat=0.02), runs) if what == "part"
    ]
    assert parts == sorted(parts) and 0.0 < parts[-1] < 1.0


def test_a_data_file_that_a_node_does_not_have_fails_its_run(make_job, tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("to be or not to be " * 100)
    from memloci.train.data import describe

    run = ml.Run(
        task=describe(path), architecture={"layers": 1, "heads": 1, "width": 4}, training={"steps": 1}
    )
    job = make_job([run])
    path.unlink()
    job = Job(job.store, job.sweep)  # the real engine
    ((what, details, _),) = answers(job, [run])
    assert what == "fail" and details["keys"] == [run.key] and f"{path}: no such file" in details["error"]


def test_a_node_with_another_version_is_refused(make_job):
    ((what, details, _),) = answers(make_job([make_run()]), [0], version="9.9")
    assert what == "refuse"
    assert re.fullmatch(r"node \S+: has memloci \S+, the driver 9\.9; install one on all", details["why"])


def test_a_node_without_memloci_is_refused(make_job, monkeypatch):
    job = make_job([make_run()])
    monkeypatch.setitem(sys.modules, "memloci.sweeps.on_ray", None)
    ((what, details, _),) = answers(job, [0])
    assert what == "refuse" and "cannot be imported" in details["why"]


def test_without_ray_one_line_says_what_to_install(make_job, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r'^[^\n]*pip install "memloci\[ray\]"$'):
        on_ray.run(make_job([make_run()]))


def test_an_address_where_nobody_is_gets_one_line(make_job):
    job = make_job([make_run()])
    for address, why in (("127.0.0.1:1", "refused"), ("ray://127.0.0.1:1", "HOST:PORT"), ("", "HOST:PORT")):
        with pytest.raises(BadInput, match=rf"^--address [^\n]*cannot join [^\n]*{why}[^\n]*$"):
            on_ray.run(job, address=address)


def test_only_ray_has_an_address(tmp_path):
    with pytest.raises(BadInput, match="address: the engine local has none"):
        ml.sweep("nosuch.toml", store=tmp_path / "runs.sqlite", address="auto")


def make_fleet(job, store, alive=True):
    """One that has claimed a run, on a cluster that is told about but not there."""
    cancelled = []
    ray = SimpleNamespace(
        remote=lambda **options: lambda task: SimpleNamespace(remote=lambda *arguments: "stream"),
        cluster_resources=lambda: {"CPU": 1.0},
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "here"),
        nodes=lambda: [{"NodeID": "here", "Alive": alive}, {"NodeID": "there", "Alive": True}],
        wait=lambda streams, **options: ([], streams),
        cancel=lambda stream, force: cancelled.append(stream),
        exceptions=SimpleNamespace(RayError=ArithmeticError),
    )
    fleet = on_ray.Fleet(job, store, ray)
    fleet.fill(1)
    return fleet, *fleet.owners, cancelled


def test_who_has_lost_the_lease_is_recalled_and_others_have_the_runs(make_job):
    run = make_run()
    job = make_job([run])
    with Store(job.store) as store:
        fleet, owner, cancelled = make_fleet(job, store)
        store.reclaim_dead(lease=-1.0)
        fleet._record(owner, "save", {"step": 10, "keys": [run.key]}, [b"state"])
        assert cancelled == ["stream"] and not fleet.owners and not kept(store)


def test_a_node_that_does_not_fit_and_a_dead_one_here_end_the_sweep_and_its_runs_wait(make_job):
    job = make_job([make_run()], beat=0.0)
    with Store(job.store) as store:
        fleet, owner, cancelled = make_fleet(job, store)
        with pytest.raises(BadInput, match="node x: has memloci 9"), fleet:
            fleet._record(owner, "refuse", {"why": "node x: has memloci 9"}, [])
        fleet, owner, _ = make_fleet(job, store, alive=False)
        with pytest.raises(BadInput, match="node of this machine has died"), fleet:
            fleet.bury()
        assert [row["status"] for row in store.rows()] == ["waiting"] and not owners(store)


REAL = """
task = "delay"
[architecture]
layers = 1
heads = 2
width = 8
[training]
steps = 20
batch = 4
evaluate_every = 10
held_out = 4
[grid]
"training.seed" = [0, 1]
"training.rate" = [1e-3, 3e-3]
"architecture.heads" = [1, 2]
"""


@pytest.mark.slow
def test_a_cluster_of_our_own_trains_to_the_same_numbers(tmp_path):
    (tmp_path / "real.toml").write_text(REAL)
    numbers = {}
    for engine in ("local", "ray"):
        command = [sys.executable, "-m", "memloci.cli", "sweep", "real.toml", "--engine", engine]
        command += ["--workers", "2", "--store", f"{engine}.sqlite"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert result.returncode == 0, result.stderr
        numbers[engine] = {run["key"]: numbers_of(run) for run in ml.Runs(tmp_path / f"{engine}.sqlite")}
    assert len(numbers["ray"]) == 8 and numbers["ray"] == numbers["local"]


def numbers_of(run):
    return [run[name] for name in ("err_sup", "err_mean_square", "loss", "held_out", "steps")]
