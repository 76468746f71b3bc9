"""Two weeks of ordinary work: short sessions of every weekday, and the failures such weeks bring."""

from collections.abc import Callable
from random import Random
from typing import Any

from helix_sessions.store import SessionStore
from project.sample.clock import Clock
from project.sample.models import CAREFUL, QUICK, SMALL
from project.sample.story import Story

DAYS = 14
_A_DAY = 4

_PRODUCTS = ("kettle", "bread knife", "cast iron pan", "coffee grinder", "milk frother", "salad spinner")
_PLACES = ("depot Hamburg", "depot Lyon", "on the road", "with the neighbour at number 12", "parcel shop")
_DOCUMENTS = ("returns policy", "catalogue page 14", "letter to suppliers", "allergen table", "job offer")
_LANGUAGES = ("French", "Polish", "Dutch", "Italian", "Danish")


def tell(store: SessionStore, owner: Any, clock: Clock) -> None:
    """Parcels, translations and nightly reports; every failure has a cause, and causes come back."""
    chance = Random("fortnight")  # noqa: S311 - the same fortnight everywhere
    for day in range(DAYS, 0, -1):
        for number in range(_A_DAY - day % 3):
            clock.go_to(days=day, minutes=-37 * number - chance.randint(0, 30))
            kind = chance.choice((_parcel, _parcel, _translation))
            kind(store, owner, clock, f"{day:02}{number}", chance)
        if day % 2:
            clock.go_to(days=day, hours=5)
            _report(store, owner, clock, day, chance)
    for number, (days, trouble) in enumerate(_TROUBLES):
        clock.go_to(days=days)
        trouble(store, owner, clock, f"9{number:02}", chance)


def _support(store: SessionStore, owner: Any, clock: Clock, number: str, **fields: Any) -> Story:
    return Story(
        store,
        f"support-5{number}",
        clock=clock,
        agent_type="support",
        owner=owner,
        model=SMALL,
        user_id=f"customer-{1000 + int(number) * 7}",
        metadata={"ticket": 5000 + int(number), "channel": "chat"},
        **fields,
    )


def _parcel(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    story = _support(store, owner, clock, number, tags=["delivery"])
    product, place = chance.choice(_PRODUCTS), chance.choice(_PLACES)
    parcel = f"PX-{chance.randint(60000, 99999)}"
    story.begin(f"Where is the {product} I ordered? The parcel is {parcel}.")
    found = {"parcel": parcel, "place": place, "due": clock.date(1)}
    story.use("track_parcel", {"parcel": parcel}, found, thought="I look where it is.")
    story.say(f"Your {product} is {place}. It should be with you tomorrow before 18:00.")
    story.end(output={"resolved": True})
    if chance.random() < 0.8:
        story.finish({"resolution": "answered"})


def _translation(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    document, language = chance.choice(_DOCUMENTS), chance.choice(_LANGUAGES)
    story = Story(
        store,
        f"translation-{number}",
        clock=clock,
        agent_type="translator",
        owner=owner,
        model=CAREFUL,
        tags=["text"],
        metadata={"document": document, "language": language},
    )
    words = chance.randint(300, 2400)
    story.begin(
        f"Translate the {document} into {language}. " + "Lorem ipsum dolor sit amet. " * (words // 30)
    )
    story.use("look_up_terms", {"language": language}, {"terms": chance.randint(4, 40)})
    story.say(f"The {document} is translated: {words} words, two questions in the margin. " + "… " * words)
    story.end(output={"words": words})
    story.finish({"words": words})


def _report(store: SessionStore, owner: Any, clock: Clock, day: int, chance: Random) -> None:
    story = Story(
        store,
        f"night-report-{day:02}",
        clock=clock,
        agent_type="night-report",
        owner=owner,
        model=QUICK,
        tags=["nightly"],
    )
    story.begin("Write the report of the day for the morning meeting.")
    orders = chance.randint(180, 420)
    story.use("query_sales", {"day": clock.date()}, {"orders": orders, "refunds": orders // 37}, seconds=7.5)
    story.say(f"{orders} orders, {orders // 37} refunds. Nothing needs a decision before ten o'clock.")
    story.end(output={"orders": orders})
    story.finish({"orders": orders})


def _rate_limited(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    """The provider refuses four times."""
    story = _support(store, owner, clock, number)
    story.begin("Can I change the address of my order?")
    message = f"Rate limit reached for gpt-5-mini: limit 200000, used {chance.randint(199000, 200000)} tokens"
    for attempt, delay in enumerate((1.1, 2.2, 4.1, None), 1):
        story.stumble("RateLimitError", message, attempt=attempt, retry_in=delay)
    story.fail("rate_limited", message, kind="RateLimitError", attempt=4)


def _warehouse_down(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    """A tool has a bug of its own."""
    story = _support(store, owner, clock, number)
    story.begin("Is the cast iron pan in stock in Lyon?")
    error = 'connection to server at "warehouse-db", port 5432 failed: Connection refused'
    story.use("query_stock", {"sku": f"PAN-{number}"}, error, is_error=True, seconds=5)
    story.fail("tool_failed", error, kind="OperationalError")


def _invalid_output(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    story = _support(store, owner, clock, number)
    story.begin("I want to complain about the packaging.")
    for _ in range(2):
        story.say('{"category": "packaging", "urgency": "quite"}')
    message = "Exceeded maximum retries (1) for output validation: urgency must be low, normal or high"
    story.fail("output_invalid", message, kind="UnexpectedModelBehavior", attempt=2)


def _crash_loop(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    story = _support(store, owner, clock, number, tags=["memory"])
    story.begin("Here is our whole product catalogue. Which items are missing pictures?")
    clock.wait(300)
    message = "The run was taken up 5 times and no turn was committed."
    story.fail("crash_loop", message, kind="CrashLoop", attempt=5, status="paused")


def _over_budget(store: SessionStore, owner: Any, clock: Clock, number: str, chance: Random) -> None:
    story = _support(store, owner, clock, number)
    story.begin("Compare all your kettles for me, please. In a table, with every detail.")
    for page in range(1, 5):
        story.use(
            "list_products",
            {"category": "kettles", "page": page},
            {"items": [f"K-{page}{n}" for n in range(9)]},
        )
    message = "The budget of 5000 tokens is used up: max_tokens."
    story.fail("budget_exceeded", message, kind="BudgetExceeded", status="paused")


_Trouble = Callable[[SessionStore, Any, Clock, str, Random], None]
_TROUBLES: tuple[tuple[float, _Trouble], ...] = (
    (11.3, _rate_limited),
    (11.29, _rate_limited),
    (9.2, _warehouse_down),
    (6.4, _invalid_output),
    (5.1, _crash_loop),
    (4.35, _warehouse_down),
    (2.6, _over_budget),
    (1.7, _rate_limited),
    (0.9, _warehouse_down),
    (0.2, _warehouse_down),
)
