"""What many processes were told could have happened one call after the other."""

from tests.torture.families import FAMILIES
from tests.torture.short_forms import patient, run_campaign

pytestmark = patient


def test_histories_are_linearizable(engine: str):
    rounds = len(FAMILIES)

    figures = run_campaign("races", engine, rounds)

    assert figures["anomalies"] == 0
    assert figures["operations checked"] == rounds * 60
    assert figures["that overlapped another"] > rounds * 20
    assert figures["about leases"] > 10
    assert figures["under a lease"] > 0
    assert figures["about the inbox"] > 20
