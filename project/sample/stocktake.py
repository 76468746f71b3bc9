"""A long transcript: a night of counting in a warehouse, two messages per bin."""

from typing import Any

from helix_sessions.store import SessionStore
from project.sample.clock import Clock
from project.sample.models import QUICK
from project.sample.story import Story

SESSION = "stocktake-november"
BINS = 200
BINS_PER_RUN = 25

_GOODS = (
    "hex bolts M6x40",
    "hex nuts M6",
    "washers 8 mm",
    "wood screws 4x50",
    "cable ties 200 mm",
    "hose clamps 16 to 27 mm",
    "wall plugs 8 mm",
    "threaded rods M8",
    "angle brackets 60 mm",
    "carriage bolts M10x80",
)


def tell(store: SessionStore, owner: Any, clock: Clock) -> None:
    """Two hundred bins, counted by a person and checked by an agent; paused for the night."""
    clock.go_to(days=2, hours=9)
    story = Story(
        store,
        SESSION,
        agent_type="stocktaker",
        owner=owner,
        clock=clock,
        model=QUICK,
        is_traced=False,
        user_id="scanner-3",
        tags=["warehouse", "long"],
        metadata={"site": "Hall 2", "shift": "night"},
        custom_state={"counted": 0, "differences": []},
    )
    for start in range(0, BINS, BINS_PER_RUN):
        story.begin(shelf=_shelf(start))
        for number in range(start, start + BINS_PER_RUN):
            _count(story, number)
        story.end()
    store.update_status(SESSION, "paused")


def _count(story: Story, number: int) -> None:
    place = f"{_shelf(number)}, bin {number % BINS_PER_RUN + 1}"
    goods = _GOODS[number % len(_GOODS)]
    expected = 40 + number * 37 % 160
    found = expected - (number % 9 if number % 17 == 5 else 0)
    story.clock.wait(11 + number * 7 % 23)
    story.ask(f"{place}: {found} {goods}.")
    if found == expected:
        story.say(f"{found} {goods}, as expected. Next bin.", writes=_writes(number))
        return
    story.say(
        f"The books say {expected}, so {expected - found} are missing. I have written it down; "
        "please look behind the bin before you go on.",
        writes=[
            *_writes(number),
            {
                "op": "append",
                "path": ["differences"],
                "values": [{"place": place, "missing": expected - found}],
            },
        ],
    )


def _writes(number: int) -> list[dict[str, Any]]:
    return [{"op": "set", "path": ["counted"], "value": number + 1}]


def _shelf(number: int) -> str:
    return f"Shelf {chr(ord('A') + number // BINS_PER_RUN)}"
