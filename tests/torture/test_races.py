"""What many processes were told could have happened one call after the other."""

from tests.torture.linearizability import Operation, is_linearizable
from tests.torture.sequential import Row, step
from tests.torture.short_forms import patient, run_campaign

pytestmark = patient


def test_histories_are_linearizable(engine: str):
    figures = run_campaign("races", engine, rounds=9)

    assert figures["anomalies"] == 0
    assert figures["operations checked"] == 9 * 60
    assert figures["that overlapped another"] > 9 * 20


def test_a_lost_update_would_be_found():
    """Two processes that read one version and both committed on it."""
    read = (1, "active", 0, (), 0)
    history = [
        Operation(0, 0, 1, "load_state", {}, read),
        Operation(1, 0, 1, "load_state", {}, read),
        Operation(0, 2, 5, *_commit(1, 1, ("ok", 2, 1))),
        Operation(1, 2, 5, *_commit(2, 1, ("ok", 2, 1))),
    ]

    assert not is_linearizable(history, Row(version=1), step)
    assert is_linearizable(history[:3], Row(version=1), step)


def test_a_flag_seen_twice_would_be_found():
    history = [
        Operation(0, 0, 1, "set_interrupt_flag", {"reason": "r"}, 2),
        Operation(1, 2, 5, "check_interrupt_flag", {}, "r"),
        Operation(2, 2, 5, "check_interrupt_flag", {}, "r"),
    ]

    assert not is_linearizable(history, Row(version=1), step)
    assert is_linearizable(history[:2], Row(version=1), step)


def test_two_accepted_answers_would_be_found():
    history = [
        Operation(0, 0, 5, "submit_tool_result", {"call": "t0"}, ("accepted", 3)),
        Operation(1, 0, 5, "submit_tool_result", {"call": "t0"}, ("accepted", 3)),
    ]

    assert not is_linearizable(history, Row(version=1, suspended=True), step)


def _commit(number: int, version: int, result: object) -> tuple[str, dict[str, object], object]:
    given = {"n": number, "checkpoint_id": f"c{number}", "version": version}
    return "save_state_and_promote_staging", given, result
