"""A shop's assistant: tools that look things up, and one that a person has to approve."""

import asyncio
import re
from hashlib import sha256
from typing import Any

from pydantic_ai import Agent, ModelRetry

from helix_sessions.agents import ToolOptions, current_turn, durable
from project.agents.models import model_or
from project.agents.script import Heard, Line

_ORDERS = {
    1042: {"item": "Kettle 1.7 l, blue", "total": 49.90, "parcel": "PX-88120", "paid_with": "card"},
    1043: {"item": "Bread knife, olive wood", "total": 64.00, "parcel": "PX-88124", "paid_with": "card"},
    1044: {"item": "Cast iron pan 28 cm", "total": 89.50, "parcel": "PX-88131", "paid_with": "invoice"},
}
_WANTS_MONEY = re.compile(r"money|refund|pay.*back|broken|cracked|damaged", re.I)


def _play(heard: Heard) -> Line:
    """The script: look up, track (wrong at first), answer; or look up, refund, tell how it went."""
    if heard.answers:
        return _after(heard)
    order = _order_in(heard)
    if order is None:
        return Line(
            "I can help with an order. Tell me its number, for example **1042**, and ask\n\n"
            "- where the parcel is,\n- or for your money back: I prepare the refund, *you* approve it.\n\n"
            "Everything I do is in the log of this session, so you may close the page at any time."
        )
    return Line(f"Let me look at order {order} first. ", [("look_up_order", {"order": order})])


def _after(heard: Heard) -> Line:
    last = heard.answers[-1]
    if last.tool == "look_up_order":
        return _after_look_up(heard, last)
    if last.tool == "track_parcel":
        if last.is_error:
            parcel = f"PX-{last.arguments['parcel']}"
            return Line("The number needs its prefix. Once more. ", [("track_parcel", {"parcel": parcel})])
        found = last.content if isinstance(last.content, dict) else {}
        return Line(
            f"Your parcel is **{found.get('place', 'on its way')}**.\n\n"
            f"- Parcel: `{found.get('parcel', '?')}`\n- Expected: {found.get('expected', 'soon')}\n\n"
            "If it is not there by then, tell me, and I get your money back."
        )
    if last.is_error or "refunded" not in last.text:
        return Line(
            "Understood, **no money was paid back**. The order stays as it is. "
            "Shall I ask the workshop for a spare part instead?"
        )
    told = last.text.rpartition("\n\n")[2]  # a changed call is told with what ran, and then its result
    how = "Done" if told == last.text else "Done, as you changed it"
    return Line(
        f"{how}. {told}\n\n"
        "The refund was paid exactly once: had the worker died in between, the next one would have known."
    )


def _after_look_up(heard: Heard, last: Any) -> Line:
    if last.is_error or not isinstance(last.content, dict):
        return Line("I cannot find that order. Orders of this demo are **1042**, **1043** and **1044**.")
    order = last.content
    if _WANTS_MONEY.search(heard.prompt):
        reason = "arrived damaged" if re.search("broken|crack|damag", heard.prompt, re.I) else "asked for"
        arguments = {"order": last.arguments["order"], "amount": order["total"], "reason": reason}
        return Line(
            f"That is the *{order['item']}* for **{order['total']:.2f} €**. I have prepared the refund; "
            "a person has to approve it before any money moves. ",
            [("refund", arguments)],
        )
    parcel = order["parcel"].removeprefix("PX-")
    return Line(f"It is the *{order['item']}*. Now the parcel. ", [("track_parcel", {"parcel": parcel})])


def _order_in(heard: Heard) -> int | None:
    for text in (heard.prompt, *reversed(heard.earlier)):
        found = re.search(r"\b(\d{3,6})\b", text)
        if found:
            return int(found[1])
    return None


_agent = Agent(
    model_or(_play),
    name="shop-assistant",
    instructions="You help the customers of a shop for kitchen goods. Look up the order first. Be brief. "
    "Use `refund` when a customer wants money back: a person approves it.",
)


@_agent.tool_plain
async def look_up_order(order: int) -> dict[str, Any]:
    """What was ordered, what it cost, and the number of the parcel."""
    await asyncio.sleep(0.7)
    if order not in _ORDERS:
        raise ModelRetry(f"There is no order {order}.")
    return {"order": order, **_ORDERS[order]}


@_agent.tool_plain(retries=2)
async def track_parcel(parcel: str) -> dict[str, str]:
    """Where a parcel is. Its number begins with PX-."""
    await asyncio.sleep(1.1)
    if not parcel.startswith("PX-"):
        raise ModelRetry(f"{parcel!r} is no parcel number: it has to begin with PX-.")
    return {"parcel": parcel, "place": "on the road, 12 stops away", "expected": "today before 18:00"}


@_agent.tool_plain(requires_approval=True)
async def refund(order: int, amount: float, reason: str) -> str:
    """Pay money back to the customer."""
    await asyncio.sleep(0.9)
    key = current_turn().idempotency_key  # what a payment provider would be given
    reference = f"RF-{sha256(str(key).encode()).hexdigest()[:6].upper()}"
    return f"{amount:.2f} € of order {order} are refunded ({reason}), reference {reference}."


assistant = durable(
    _agent, tools={"refund": ToolOptions(approval="participant"), "look_up_order": ToolOptions(retries=2)}
)
