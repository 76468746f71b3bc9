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
        ours = BranchingDjangoSession("s")
        told = []
        for session in (ours, theirs):
            await session.add_items(ITEMS)
            told.append(await test(session))
        theirs.close()
        assert told[0] == told[1]
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
