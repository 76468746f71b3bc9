"""Invoices: one paid, one waits for a signature, one past the deadline of its approval, one expired."""

from datetime import timedelta
from typing import Any

from helix_sessions.store import SessionStore
from project.sample.clock import Clock
from project.sample.models import SMALL
from project.sample.story import Story
from project.sample.waiting import pending_call


def tell(store: SessionStore, owner: Any, clock: Clock) -> None:
    """Four invoices of one accounting department."""
    _paid(store, owner, clock)
    _waiting(store, owner, clock)
    _overdue(store, owner, clock)
    _expired(store, owner, clock)


def _invoice(store: SessionStore, owner: Any, clock: Clock, number: str, **fields: Any) -> Story:
    metadata = {"invoice": number, **fields.pop("metadata")}
    return Story(
        store,
        f"invoice-{number}",
        agent_type="invoices",
        owner=owner,
        clock=clock,
        model=SMALL,
        metadata=metadata,
        custom_state={"checks": [], "invoice": metadata},
        **fields,
    )


def _paid(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(days=9, hours=5)
    story = _invoice(
        store,
        owner,
        clock,
        "1120",
        tags=["paid"],
        metadata={"vendor": "Norddruck GmbH", "amount": "1,208.45", "currency": "EUR"},
    )
    story.begin("Please check invoice 1120 and pay it if it is in order.")
    story.use(
        "compare_with_order",
        {"invoice": "1120"},
        {"order": "PO-5513", "difference": "0.00"},
        writes=[{"op": "append", "path": ["checks"], "values": ["matches PO-5513"]}],
    )
    story.use(
        "schedule_payment",
        {"invoice": "1120", "on": clock.date(3)},
        {"payment": "SEPA-99102"},
        writes=[{"op": "set", "path": ["payment"], "value": "SEPA-99102"}],
    )
    story.say("Invoice 1120 matches order PO-5513 to the cent. It will be paid in three days.")
    story.end(output={"payment": "SEPA-99102"})
    story.finish({"payment": "SEPA-99102"})


def _waiting(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(hours=7)
    story = _invoice(
        store,
        owner,
        clock,
        "1178",
        tags=["approval"],
        metadata={"vendor": "Kranbau Lüders KG", "amount": "18,420.00", "currency": "EUR"},
        expires_at=clock.start + timedelta(days=30),
    )
    run = story.begin("Invoice 1178 came in today. Check it, please.")
    story.use(
        "compare_with_order",
        {"invoice": "1178"},
        {"order": "PO-5540", "difference": "1,420.00"},
        writes=[{"op": "append", "path": ["checks"], "values": ["1,420.00 EUR above PO-5540"]}],
    )
    arguments = {"invoice": "1178", "amount": "18,420.00", "currency": "EUR"}
    call_id = story.call(
        "schedule_payment",
        arguments,
        thought="The invoice is 1,420.00 EUR above the order. Someone has to approve this payment.",
    )
    waiting = pending_call(
        call_id,
        "schedule_payment",
        arguments,
        run,
        kind="approval",
        approval_id="approval-1178",
        deadline_in=timedelta(days=2),
    )
    story.save(
        pending_client_tool_calls={call_id: waiting},
        client_tool_call_ownership={call_id: story.session_id},
        suspended_step_id="step-2",
        suspension_context={"reason": "amount above order"},
    )
    story.end(status="suspended_client_tool")


def _overdue(store: SessionStore, owner: Any, clock: Clock) -> None:
    """No approver decided in time: workers answer a call past its deadline with an error."""
    clock.go_to(hours=26)
    story = _invoice(
        store,
        owner,
        clock,
        "1165",
        tags=["approval", "overdue"],
        metadata={"vendor": "Hafenlogistik Brandt", "amount": "4,960.00", "currency": "EUR"},
    )
    run = story.begin("Invoice 1165 is due tomorrow. Pay it if the delivery is complete.")
    story.use("compare_with_order", {"invoice": "1165"}, {"order": "PO-5537", "difference": "0.00"})
    arguments = {"invoice": "1165", "amount": "4,960.00", "currency": "EUR"}
    call_id = story.call("schedule_payment", arguments, thought="It matches. Above 2,500 EUR a person signs.")
    waiting = pending_call(
        call_id,
        "schedule_payment",
        arguments,
        run,
        kind="approval",
        approval_id="approval-1165",
        deadline_in=timedelta(hours=24),
    )
    story.save(
        pending_client_tool_calls={call_id: waiting},
        client_tool_call_ownership={call_id: story.session_id},
        suspended_step_id="step-2",
    )
    story.end(status="suspended_client_tool")


def _expired(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(days=13, hours=2)
    story = _invoice(
        store,
        owner,
        clock,
        "0990",
        tags=["approval", "overdue"],
        metadata={"vendor": "Stadtwerke Mühlbach", "amount": "312.10", "currency": "EUR"},
        expires_at=clock.start - timedelta(days=3),
    )
    run = story.begin("Invoice 0990 has no order number. What do we do with it?")
    arguments = {"question": "Which cost centre pays for the electricity of the old warehouse?"}
    call_id = story.call("ask_accounting", arguments, thought="Only a person can know this.")
    waiting = pending_call(call_id, "ask_accounting", arguments, run, deadline_in=timedelta(days=3))
    story.save(
        status="paused",
        pending_client_tool_calls={call_id: waiting},
        client_tool_call_ownership={call_id: story.session_id},
        suspended_step_id="step-1",
    )
    story.end(status="suspended_client_tool")
