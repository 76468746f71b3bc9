"""Branches, usage and queries by turn, beside the SDK's own `AdvancedSQLiteSession`."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Usage
from agents.extensions.memory import AdvancedSQLiteSession

from helix_sessions.integrations.openai_agents_branches import BranchingDjangoSession
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

IS_FINISHED = hasattr(AdvancedSQLiteSession, "_reserve_branch_id")
"""Whether theirs keeps names of branches taken, and forgets usage with its turn: earlier ones do not."""

ITEMS: list[Any] = [
    {"role": "user", "content": "Weather in Oslo?"},
    {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
    {"type": "function_call", "call_id": "d", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "rain"},
    {"type": "function_call_output", "call_id": "d", "output": "rain"},
    {"role": "assistant", "content": "Rain."},
    {"role": "user", "content": "And in " + "Bergen" * 30},
    {"role": "assistant", "content": "Rain."},
    {"role": "user", "content": [{"type": "input_text", "text": "Thanks"}]},
]


def both(test: Callable[[Any], Coroutine[Any, Any, list[Any]]]) -> list[Any]:
    """What ours tells, which theirs tells too."""

    async def run() -> list[Any]:
        theirs = AdvancedSQLiteSession(session_id="s", create_tables=True)
        told = []
        asked: list[Any] = [BranchingDjangoSession("s"), theirs]
        for session in asked if IS_FINISHED else asked[:1]:
            await session.add_items(ITEMS)
            told.append(await test(session))
        theirs.close()
        assert all(each == told[0] for each in told)
        return told[0]

    return asyncio.run(run())


def used(tokens: int) -> Any:
    usage = Usage(requests=1, input_tokens=tokens, output_tokens=2, total_tokens=tokens + 2)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


def timeless(found: Any) -> Any:
    return [
        {name: value for name, value in each.items() if name not in ("timestamp", "created_at")}
        for each in found
    ]


def test_turns(store: SessionStore) -> None:
    async def ask(session: Any) -> list[Any]:
        return [
            timeless(await session.get_conversation_turns()),
            timeless(await session.find_turns_by_content("bergen")),
            timeless(await session.find_turns_by_content("thanks")),
            await session.find_turns_by_content("nothing"),
            await session.get_conversation_by_turns(),
            await session.get_tool_usage(),
        ]

    turns, *_, tools = both(ask)
    assert [turn["turn"] for turn in turns] == [1, 2, 3]
    assert tools == [("weather", 2, 1)]


def test_branches(store: SessionStore) -> None:
    async def ask(session: Any) -> list[Any]:
        told: list[Any] = [await session.create_branch_from_turn(2, "other"), await session.get_items()]
        await session.add_items([{"role": "user", "content": "And in Paris?"}])
        told += [await session.get_items(), timeless(await session.list_branches())]
        told += [await session.create_branch_from_content("paris", "third"), len(await session.get_items())]
        await session.switch_to_branch("main")
        told += [len(await session.get_items()), timeless(await session.get_conversation_turns("other"))]
        await session.delete_branch("other")
        for refused in (
            lambda: session.create_branch_from_turn(9),
            lambda: session.create_branch_from_turn(1, "other"),
            lambda: session.create_branch_from_turn(1, " "),
            lambda: session.create_branch_from_content("nothing"),
            lambda: session.switch_to_branch("other"),
            lambda: session.delete_branch("main"),
            lambda: session.delete_branch("other"),
        ):
            with pytest.raises(ValueError):  # noqa: PT011
                await refused()
        await session.switch_to_branch("third")
        with pytest.raises(ValueError, match="current"):
            await session.delete_branch("third")
        await session.delete_branch("third", force=True)
        return [*told, timeless(await session.list_branches()), len(await session.get_items())]

    told = both(ask)
    assert told[0] == "other"
    assert told[-1] == len(ITEMS)
    assert len(store.list_sessions().items) == 1


def test_usage(store: SessionStore) -> None:
    async def ask(session: Any) -> list[Any]:
        told: list[Any] = [await session.get_session_usage(), await session.get_turn_usage(1)]
        await session.store_run_usage(used(10))
        await session.store_run_usage(used(20))
        await session.create_branch_from_turn(2, "other")
        await session.store_run_usage(used(5))
        for turn in (1, 3):
            found = await session.get_turn_usage(turn, "main")
            told.append({name: found.get(name) for name in ("requests", "input_tokens", "total_tokens")})
        told += [await session.get_session_usage(), await session.get_session_usage("other")]
        return [*told, [turn["user_turn_number"] for turn in await session.get_turn_usage()]]

    told = both(ask)
    assert told[4] == {
        "requests": 2,
        "input_tokens": 25,
        "output_tokens": 4,
        "total_tokens": 29,
        "total_turns": 2,
    }
    assert store.get_usage("s").input_tokens == 30


def test_what_a_turn_used_is_forgotten_with_the_turn(store: SessionStore) -> None:
    async def ask(session: Any) -> list[Any]:
        await session.store_run_usage(used(10))
        told: list[Any] = [(await session.get_turn_usage(3))["input_tokens"]]
        last = await session.pop_item()
        told.append(await session.get_turn_usage(3))
        await session.add_items([last])  # the same words are another turn
        told += [await session.get_turn_usage(3), await session.get_session_usage()]
        await session.store_run_usage(used(7))
        told.append((await session.get_turn_usage(3))["input_tokens"])
        await session.add_items([{"role": "assistant", "content": "You are welcome."}])
        await session.pop_item()
        return [*told, (await session.get_turn_usage(3))["input_tokens"]]

    assert both(ask) == [10, {}, {}, None, 7, 7]


def test_clearing_deletes_every_branch_and_is_seen_by_others(store: SessionStore) -> None:
    async def ask(session: Any) -> list[Any]:
        await session.store_run_usage(used(10))
        await session.create_branch_from_turn(2, "other")
        await session.clear_session()
        told: list[Any] = [await session.get_items(), await session.get_session_usage()]
        told += [await session.get_items(branch_id="other"), await session.list_branches()]
        await session.add_items(ITEMS[:1])
        with pytest.raises(ValueError, match="already been used"):
            await session.create_branch_from_turn(1, "other")
        return [*told, await session.get_items(), await session.get_items(branch_id="main")]

    assert both(ask)[-2:] == [ITEMS[:1], ITEMS[:1]]

    async def elsewhere() -> Any:
        stale, clearer = BranchingDjangoSession("s"), BranchingDjangoSession("s")
        await stale.create_branch_from_turn(1, "stale")
        await clearer.clear_session()
        await stale.add_items(ITEMS[:1])
        return await clearer.get_items(), await stale.get_conversation_by_turns("nowhere")

    assert asyncio.run(elsewhere()) == (ITEMS[:1], {})
    assert len(store.list_sessions().items) == 1


def test_a_call_is_about_the_branch_that_was_current(store: SessionStore) -> None:
    async def ask() -> Any:
        session = BranchingDjangoSession("s")
        await session.add_items(ITEMS)
        await session.create_branch_from_turn(2, "other")
        adding = asyncio.ensure_future(session.add_items(ITEMS[:1]))
        await asyncio.sleep(0)
        await session.switch_to_branch("main")
        await adding
        return len(await session.get_items()), len(await session.get_items(branch_id="other"))

    assert asyncio.run(ask()) == (len(ITEMS), 7)


def test_times_are_those_of_the_turns_that_are_there(store: SessionStore) -> None:
    async def ask() -> Any:
        session = BranchingDjangoSession("s")
        times = []
        for item in ITEMS[:1], ITEMS[6:7], ITEMS[8:]:
            await session.add_items(item)
            times.append((await session.get_conversation_turns())[-1]["timestamp"])
        await session.pop_item()
        await session.pop_item()
        await session.add_items(ITEMS[6:7])
        return times, [turn["timestamp"] for turn in await session.get_conversation_turns()]

    times, left = asyncio.run(ask())
    assert left[0] == times[0]
    assert left[1] > times[2]


def test_a_failure_to_store_usage_is_logged(store: SessionStore, caplog: pytest.LogCaptureFixture) -> None:
    session = BranchingDjangoSession("s")
    session.close()
    asyncio.run(session.store_run_usage(used(1)))
    assert "was not stored" in caplog.text
