"""Calls that are made side by side in one history."""

from helix_sessions.store import SessionStore
from helix_sessions.types import PendingCall
from tests.torture.callers import Caller
from tests.torture.drivers import Driver, Sender
from tests.torture.rows import Row
from tests.torture.sequential import CALLS


class Family:
    """Calls that are made side by side."""

    calls: tuple[str, ...]
    caller: type[Caller] = Caller

    def prepare(self, store: SessionStore, session: str) -> Row:
        """Create the session; what it is at the beginning."""
        raise NotImplementedError


class States(Family):
    calls = (
        "load_state",
        "compare_and_set_status",
        "save_state_and_promote_staging",
        "save_state_and_promote_staging",
        "append_messages",
        "merge_custom_state",
        "set_interrupt_flag",
        "check_interrupt_flag",
        "create_run",
        "update_run_status",
    )

    def prepare(self, store: SessionStore, session: str) -> Row:
        store.create_session(session, agent_type="agent", custom_state={"done": []})
        return Row(version=1, seq=store.load_state(session).head_seq)


class Swaps(Family):
    """Fewer calls, and so more that want the same."""

    calls = ("load_state", "compare_and_set_status", "save_state_and_promote_staging")
    prepare = States.prepare


class Submissions(Family):
    calls = (
        *["submit_tool_result"] * 3,
        *["resume"] * 2,
        "load_state",
        "set_interrupt_flag",
        "check_interrupt_flag",
    )

    def prepare(self, store: SessionStore, session: str) -> Row:
        asked = [{"id": call, "name": "ask", "arguments": {}} for call in CALLS]
        turn = store.begin_turn(session, message="hello", agent_type="agent", custom_state={"done": []})
        store.suspend(
            session,
            "client_tool",
            state=turn.state,
            run_id=turn.run.run_id,
            append_messages=[{"role": "assistant", "content": "?", "tool_calls": asked}],
            pending_calls=[PendingCall(tool_call_id=call, tool_name="ask", arguments={}) for call in CALLS],
        )
        state = store.load_state(session)
        return Row(version=state.version, seq=state.head_seq, messages=2, turns=1, suspended=True)


class Leases(Family):
    """Owners that take a session from each other, and write to it also when they have lost it."""

    calls = (
        *["acquire_lease"] * 3,
        "renew_lease",
        "release_lease",
        "get_lease",
        "get_occupancy",
        "load_state",
        "append_messages",
        "merge_custom_state",
        *["save_state_and_promote_staging"] * 2,
        "admit_input",
        "promote_inputs",
    )
    caller = Driver
    prepare = States.prepare


class Inboxes(Family):
    """Those who send, those who think better of it, and those who promote."""

    calls = (
        *["admit_input"] * 4,
        *["promote_inputs"] * 2,
        "cancel_input",
        *["set_delivery"] * 2,
        "list_inputs",
        "count_inputs",
        "get_occupancy",
        "load_state",
        "append_messages",
    )
    caller = Sender
    prepare = States.prepare


FAMILIES: list[Family] = [States(), Swaps(), Submissions(), Leases(), Inboxes()]
