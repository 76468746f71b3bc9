"""Behind a proxy that pools by transaction everything works but LISTEN, and live readers poll."""

import pytest

from tests.pgbouncer import MISSING, find_pgbouncer
from tests.torture.short_forms import needs_postgresql, patient, run_campaign

pytestmark = patient


def test_writers_and_a_reader_behind_pgbouncer(engine: str):
    needs_postgresql(engine)
    if find_pgbouncer() is None:
        pytest.skip(MISSING)

    figures = run_campaign("pooled", engine, rounds=160)

    assert figures["calls"] == 160
    assert figures["events followed live"] == 160
    assert figures["writers that changed connections"] > 0
