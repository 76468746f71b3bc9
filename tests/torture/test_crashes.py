"""Whatever dies, every acknowledged write is there, no other is half there, and repeating settles it once."""

from tests.torture.short_forms import needs_postgresql, patient, run_campaign

pytestmark = patient


def test_processes_are_killed(engine: str):
    figures = run_campaign("kills", engine, rounds=8)

    assert figures["kills"] == 8
    assert figures["calls"] > 8
    assert figures["settled"] > 0


def test_the_server_crashes(engine: str):
    needs_postgresql(engine, own_server=True)

    figures = run_campaign("crashes", engine, rounds=3)

    assert figures["crashes of the server"] == 3
    assert figures["lost again"] > 0  # they came back while it was away
    assert figures["calls"] > 0


def test_the_database_dies_under_workers(engine: str):
    needs_postgresql(engine, own_server=True)

    figures = run_campaign("driven", engine, rounds=3)

    assert figures["schedules"] == 3
    assert figures.get("cut connections", 0) + figures.get("crashes of the server", 0) > 0


def test_connections_are_cut_in_mid_commit(engine: str):
    needs_postgresql(engine)

    figures = run_campaign("cuts", engine, rounds=24)

    assert figures["cut commits"] >= 24
    assert 0 < figures["of these had taken place"] < figures["settled"]
