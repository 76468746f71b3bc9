"""A support desk: a refund that is done, and a chat that is stuck and that an operator wants to stop."""

from typing import Any

from helix_sessions.store import SessionStore
from project.sample.clock import Clock
from project.sample.story import Story


def tell(store: SessionStore, owner: Any, clock: Clock) -> None:
    """Two customers of a shop for kitchen goods."""
    _refund(store, owner, clock)
    _stopping(store, owner, clock)


def _refund(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(days=8, hours=3)
    story = Story(
        store,
        "support-4812",
        agent_type="support",
        owner=owner,
        clock=clock,
        user_id="customer-1093",
        tags=["refund"],
        metadata={"ticket": 4812, "channel": "email", "priority": "normal"},
        custom_state={"customer": {"name": "Ines Moreau", "language": "en"}, "facts": []},
    )
    story.begin("Hello, the kettle I ordered last week arrived with a cracked lid. Order 70-3315.")
    story.use(
        "look_up_order",
        {"order": "70-3315"},
        {
            "order": "70-3315",
            "placed": clock.date(-7),
            "items": [
                {"sku": "KET-17-BL", "name": "Kettle 1.7 l, blue", "price": "49.90", "currency": "EUR"}
            ],
            "delivered": clock.date(-1),
        },
        thought="I will look at the order first.",
        writes=[
            {"op": "set", "path": ["order"], "value": {"id": "70-3315", "total": "49.90"}},
            {"op": "append", "path": ["facts"], "values": ["lid cracked on arrival"]},
        ],
    )
    story.say(
        "I am sorry about the lid. Would you like a new kettle, or your 49.90 EUR back? "
        "You need not send anything back in either case."
    )
    story.end()
    clock.wait(1260)
    story.begin("The money back, please.")
    story.use(
        "issue_refund",
        {"order": "70-3315", "amount": "49.90", "currency": "EUR"},
        {"error": "The payment provider did not answer within 10 seconds."},
        is_error=True,
        seconds=10,
    )
    story.use(
        "issue_refund",
        {"order": "70-3315", "amount": "49.90", "currency": "EUR"},
        {"refund": "RF-20811", "state": "accepted"},
        thought="The provider did not answer. The refund was not made, so I try once more.",
        writes=[{"op": "set", "path": ["order", "refund"], "value": "RF-20811"}],
    )
    story.say(
        "Done: 49.90 EUR go back to the card you paid with, usually within three working days. "
        "The reference is RF-20811."
    )
    story.end(output={"refund": "RF-20811"})
    story.finish({"resolution": "refunded", "refund": "RF-20811"})


def _stopping(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(minutes=52)
    story = Story(
        store,
        "support-4820",
        agent_type="support",
        owner=owner,
        clock=clock,
        user_id="customer-2270",
        tags=["delivery", "vip"],
        metadata={"ticket": 4820, "channel": "chat", "priority": "high"},
        custom_state={"customer": {"name": "Tomasz Wójcik", "language": "en"}, "parcels": []},
    )
    story.begin("Three parcels were promised for yesterday and none is here. What is going on?")
    story.use(
        "track_parcels",
        {"customer": "customer-2270"},
        [
            {"parcel": "PX-88120", "place": "depot Poznań", "state": "held: address incomplete"},
            {"parcel": "PX-88121", "place": "depot Poznań", "state": "held: address incomplete"},
            {"parcel": "PX-88124", "place": "on the road", "state": "due today before 18:00"},
        ],
        writes=[{"op": "append", "path": ["parcels"], "values": ["PX-88120", "PX-88121", "PX-88124"]}],
    )
    call_id = story.call(
        "correct_address",
        {"parcels": ["PX-88120", "PX-88121"], "flat": "14"},
        thought="Two parcels are held because the flat number is missing. I will add it.",
    )
    store.stage_changes(
        story.session_id,
        "step-2",
        call_id,
        [{"op": "set", "path": ["address", "flat"], "value": "14"}],
    )
    store.set_interrupt_flag(story.session_id, "The customer asked for a person.")
