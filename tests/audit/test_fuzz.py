"""No attack on random tasks and models exceeds a certificate; smaller bounds would be exceeded."""

import numpy as np
import pytest

from memloci.routes.registry import ROUTES
from tests.audit.fuzz import Record, fuzz
from tests.audit.random_tasks import SERVES
from tests.audit.raw_models import RAW

LEAST_ATTACKS = 20  # per route, in the long run


def nothing_wrong(record: Record) -> bool:
    print(record.text())  # pytest shows it when the test fails
    return not record.violations and not record.tracebacks


def test_no_attack_exceeds_a_bound():
    record = fuzz(60, seed=1)
    assert nothing_wrong(record) and record.cases == 60
    assert record.sequences > 60 * 100 and record.streams


def test_bounds_that_are_too_small_are_found_out():
    """The harness with every bound scaled by 0.8: some certificates are sharp, so violations must turn up."""
    record = fuzz(12, seed=1, scale=0.8, routes=["t5"])
    assert record.violations and all(one.error > 0.8 * one.bound for one in record.violations)


def test_every_route_is_attacked():
    assert SERVES.keys() == ROUTES.keys()


@pytest.mark.slow
def test_no_attack_of_two_thousand_exceeds_a_bound(capsys):
    record = fuzz(2_000, seed=0)
    assert nothing_wrong(record)
    with capsys.disabled():
        print(f"\n{record.text()}")
    assert min(record.attacks[route] for route in (*ROUTES, RAW)) >= LEAST_ATTACKS
    medians = {route: float(np.median(record.tightness[route])) for route in ROUTES}
    assert max(medians.values()) < 10, medians
