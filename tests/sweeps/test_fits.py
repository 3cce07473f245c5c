"""The best of a sweep comes back as the models that were trained."""

import numpy as np

from memloci.sweeps.fits import best_fits
from memloci.sweeps.runs import Runs
from memloci.sweeps.store import Store
from memloci.sweeps.worker import ENGINE, Job, Worker
from memloci.train.engine import execute
from tests.train.cases import small_run


def test_the_best_group_has_all_its_seeds_and_their_models(tmp_path):
    path = tmp_path / "runs.sqlite"
    good = [small_run(rate=0.01, steps=100, seed=seed) for seed in (0, 1)]
    bad = [small_run(rate=1e-9, steps=100, seed=seed) for seed in (0, 1)]
    with Store(path) as store:
        sweep = store.enqueue("rates", [*bad, *good])
        Worker(Job(str(path), sweep, ENGINE), "me", store, execute).work()
    fits = best_fits(Runs(path))
    assert [fit.run.key for fit in fits] == [run.key for run in good]
    for fit, outcome in zip(fits, execute(good), strict=True):
        assert fit.history == outcome.history
        np.testing.assert_array_equal(fit.model.W_E, outcome.model.W_E)
