"""An acknowledged write outlives the machine it was written on, if the standby is synchronous. No number that
comes again, of a transaction that was lost or of one long ago, makes one row look like another: the short
form of that is in `tests/store/test_known_rows.py`."""

import pytest

from tests.pgbouncer import MISSING, find_pgbouncer
from tests.torture.short_forms import needs_postgresql, patient, run_campaign

pytestmark = patient


def test_the_primary_is_lost(engine: str):
    needs_postgresql(engine, own_server=True)

    figures = run_campaign("failover", engine, rounds=1)

    assert figures["acknowledged writes"] > 0
    assert figures["acknowledged writes lost"] == 0
    assert figures["control: lost with an asynchronous standby"] > 0


def needs_pgbouncer(engine: str) -> None:
    needs_postgresql(engine, own_server=True)
    if find_pgbouncer() is None:
        pytest.skip(MISSING)


@pytest.mark.slow
def test_the_primary_is_lost_behind_a_pooler(engine: str):
    needs_pgbouncer(engine)

    figures = run_campaign("failover_pooled", engine, rounds=1)

    assert figures["acknowledged writes"] > 0
    assert figures["acknowledged writes lost"] == 0
    assert figures["connections that outlived their primary"] == 4, "the pooler did not keep them"


@pytest.mark.slow
def test_the_numbers_of_lost_transactions_are_handed_out_again(engine: str):
    """Once where Django was told of the pooler, and once where it was not."""
    needs_pgbouncer(engine)

    figures = run_campaign("reused_ids", engine, rounds=2)

    assert figures["late writes refused"] == 2


@pytest.mark.slow
def test_the_numbers_of_transactions_begin_again(engine: str):
    needs_postgresql(engine, own_server=True)

    figures = run_campaign("wraparound", engine, rounds=300)

    assert figures["writes"] == 300
    assert figures["times the numbers began again"] == 1
