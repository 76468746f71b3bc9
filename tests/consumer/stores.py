"""Calls of the store, and what they return."""

from dataclasses import replace
from typing import assert_type

from helix_sessions.memory import MemoryStore
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import (
    Delivery,
    EventRecord,
    InputReceipt,
    OutcomeKind,
    Page,
    RunOutcome,
    RunStatus,
    SessionState,
    SessionStatus,
    SessionSummary,
    SubmissionOutcome,
)

store = SessionStore()
state = store.create_session("s", agent_type="support", mode="persistent")
assert_type(state, SessionState)
status: SessionStatus = state.status
store.save_state("s", replace(state, step_count=1), expected_version=state.version)
receipt = store.admit_input("s", "Hello.", delivery="queue")
assert_type(receipt, InputReceipt)
delivery: Delivery = receipt.delivery
run_status: RunStatus = store.create_run("s").status
store.update_run_status("s", "r", "completed", usage={"input_tokens": 3})
assert_type(store.list_sessions(status="active"), Page[SessionSummary])
assert_type(store.get_events("s"), list[EventRecord])
answered: SubmissionOutcome = store.submit_tool_result("s", "call", result="yes").outcome
store.clone_session("s", None)
MemoryStore(owned_by=7).put(("owner", "7"), "colour", {"is": "blue"})
with store.subscribe("s", after=0) as events:
    for event in events:
        assert_type(event, EventRecord)


def kind_of(outcome: RunOutcome) -> OutcomeKind:
    return outcome.kind


async def ask() -> int:
    found = await AsyncSessionStore("agents").get_session_head("s")
    return found.version


store.update_status("s", "asleep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
store.admit_input("s", "Hello.", delivery="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
store.create_session("s", agent_type="a", mode="fast")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
store.list_sessions(status="over")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
store.create_session("s", agent_typ="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
replace(state, status="asleep")  # type: ignore[arg-type]
if state.status == "finished":  # type: ignore[comparison-overlap]
    store.delete_session("s")
