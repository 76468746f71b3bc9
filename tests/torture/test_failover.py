"""An acknowledged write outlives the machine it was written on, if the standby is synchronous."""

from tests.torture.short_forms import needs_postgresql, patient, run_campaign

pytestmark = patient


def test_the_primary_is_lost(engine: str):
    needs_postgresql(engine, own_server=True)

    figures = run_campaign("failover", engine, rounds=1)

    assert figures["acknowledged writes"] > 0
    assert figures["acknowledged writes lost"] == 0
    assert figures["control: lost with an asynchronous standby"] > 0
