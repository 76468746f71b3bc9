"""Branches, usage and queries by turn for sessions of the OpenAI Agents SDK, as its `AdvancedSQLiteSession`
has them: a branch is a session that was cloned from another, and what a turn used is a run."""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from sys import maxsize
from typing import Any, ParamSpec, TypeVar, cast

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.openai_agents import DjangoSession
from helix_sessions.store.engine.ids import new_id
from helix_sessions.types import JSON, ROLES, EventRecord, Run

with needed_from("openai-agents"):
    from agents.items import TResponseInputItem
    from agents.result import RunResultBase
    from pydantic_core import to_jsonable_python

logger = logging.getLogger(__name__)

MAIN = "main"
_NOTE = "openai_agents.branch|"
_PREVIEW = 100
_UNNAMED_CALLS = (
    *("computer_call", "file_search_call", "web_search_call", "code_interpreter_call"),
    *("shell_call", "apply_patch_call"),
)
_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS = ("input_tokens_details", "output_tokens_details")

_MESSAGES = tuple(f"{role}_message" for role in ROLES)
_SHORTENED = "messages_truncated"

P = ParamSpec("P")
T = TypeVar("T")

_selected: ContextVar[tuple[str, bool]] = ContextVar("branch")
"""The branch that a call is about, and whether the caller named it: otherwise it was current then."""


class _NoBranch(ValueError):
    """A name that no branch has, or that of one that was deleted."""


class BranchingDjangoSession(DjangoSession):
    """A `DjangoSession` with branches. Turns are counted from 1, by the messages of the user.

    Which branch is current is known to this object alone; it begins with `main`, the session itself.
    """

    _branch = MAIN

    async def _awaited(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call is about the branch that is current when it is made, whatever is switched to meanwhile."""
        token = _selected.set(_selected.get((self._branch, False)))
        try:
            return await super()._awaited(call, *args, **kwargs)
        finally:
            _selected.reset(token)

    @property
    def _key(self) -> str:
        return self._key_of(None)

    def _key_of(self, branch: str | None) -> str:
        """The session of a branch, by default of the current one: `main` if a caller cleared the session."""
        name, named = _selected.get((self._branch, False)) if branch is None else (branch, True)
        if name == MAIN:
            return self.session_id
        noted = self._noted(name)
        if not named and noted is not None and noted.get("cleared"):
            _selected.set((MAIN, False))
            self._branch = MAIN if self._branch == name else self._branch
            return self.session_id
        if noted is None or noted["session_id"] is None:
            raise _NoBranch(f"Branch {name!r} does not exist")
        return str(noted["session_id"])

    def _noted(self, branch: str) -> dict[str, Any] | None:
        """What is known of a branch; `None` if its name was never used."""
        try:
            found = self._store.get_notes(self.session_id, keys=[_NOTE + branch])
        except SessionNotFound:
            return None
        return cast(dict[str, Any], found[0].document) if found else None

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None
    ) -> list[TResponseInputItem]:
        """The history of a branch, by default of the current one; empty if there is no such branch."""
        token = _selected.set((self._branch, False) if branch_id is None else (branch_id, True))
        try:
            return await super().get_items(limit)
        except _NoBranch:
            return []
        finally:
            _selected.reset(token)

    async def clear_session(self) -> None:
        """Empty the history, forget what turns used, and delete all branches. Their names are not given
        again. Then `main` is current, for every object of this session."""
        await self._awaited(self._clear_all)
        self._branch = MAIN

    def _clear_all(self) -> None:
        self._look()
        for branch, key in self._branches().items():
            if branch != MAIN:
                gone = {_NOTE + branch: {"session_id": None, "cleared": True}}
                self._store.put_notes(self.session_id, gone, quietly=True)
                self._store.delete_session(key)
        _selected.set((MAIN, False))
        self._clear()

    # Branches

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Branch off before a turn of the current branch, and switch there; returns the branch's id."""
        return await self._awaited(self._create_branch, turn_number, branch_name)

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Branch off before the first turn whose message has this text."""
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise ValueError(f"No user turns found containing {search_term!r}")
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Read and write another branch from now on."""
        await self._awaited(self._key_of, branch_id)
        self._branch = branch_id

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch; the current one only if forced, and then `main` is current. Its id is not given
        again."""
        if not branch_id.strip():
            raise ValueError("Branch ID cannot be empty")
        if branch_id == MAIN:
            raise ValueError("Cannot delete the 'main' branch")
        if branch_id == self._branch and not force:
            raise ValueError(
                f"Cannot delete current branch {branch_id!r}. Use force=True or switch branches first"
            )
        await self._awaited(self._delete_branch, branch_id)

    async def list_branches(self) -> list[dict[str, Any]]:
        """The branches with something in them: `branch_id`, `message_count`, `user_turns`, `is_current`,
        `created_at`; the oldest first."""
        return await self._awaited(self._list_branches)

    def _create_branch(self, turn: int, name: str | None) -> str:
        if name is not None and not name.strip():
            raise ValueError("Branch name cannot be empty")
        branch = name or f"branch_from_turn_{turn}_{new_id()}"
        place = next((place for number, place, _ in self._turns(None) if number == turn), None)
        if place is None:
            raise ValueError(f"Turn {turn} does not contain a user message in branch {self._branch!r}")
        note = _NOTE + branch
        if branch == MAIN or self._noted(branch) is not None:
            raise ValueError(f"Branch {branch!r} has already been used in this session")
        key = new_id()
        self._store.clone_session(self._key, key, message_count=place)
        self._store.put_notes(self.session_id, {note: {"session_id": key}}, quietly=True)
        self._branch = branch
        return branch

    def _delete_branch(self, branch: str) -> None:
        key = self._key_of(branch)
        self._store.put_notes(self.session_id, {_NOTE + branch: {"session_id": None}}, quietly=True)
        self._store.delete_session(key)
        if self._branch == branch:
            self._branch = MAIN

    def _list_branches(self) -> list[dict[str, Any]]:
        with suppress(_NoBranch):
            self._key_of(None)  # which is current may have changed
        found = []
        for branch, key in self._branches().items():
            try:
                state = self._store.load_state(key)
            except SessionNotFound:
                continue
            found.append(
                {
                    "branch_id": branch,
                    "message_count": state.message_count,
                    "user_turns": len(self._turns(branch)),
                    "is_current": branch == self._branch,
                    "created_at": state.created_at,
                }
            )
        return sorted((each for each in found if each["message_count"]), key=lambda each: each["created_at"])

    def _branches(self) -> dict[str, str]:
        try:
            notes = self._store.get_notes(self.session_id, prefix=_NOTE)
        except SessionNotFound:
            return {}
        named = {note.key.removeprefix(_NOTE): cast(Any, note.document)["session_id"] for note in notes}
        return {MAIN: self.session_id, **{branch: key for branch, key in named.items() if key is not None}}

    # Turns

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """The turns of a branch: `turn`, `content` (its beginning), `full_content`, `timestamp` (`None` if it
        is in the archive), `can_branch`."""
        return await self._awaited(self._described, branch_id, _PREVIEW)

    async def find_turns_by_content(
        self, search_term: str, branch_id: str | None = None
    ) -> list[dict[str, Any]]:
        """The turns whose message has this text, in any case."""
        pattern = re.compile(re.escape(search_term), re.IGNORECASE | re.ASCII)
        turns = await self._awaited(self._described, branch_id, None)
        return [turn for turn in turns if any(pattern.search(text) for text in _texts(turn["full_content"]))]

    async def get_conversation_by_turns(
        self, branch_id: str | None = None
    ) -> dict[int, list[dict[str, str | None]]]:
        """The types of the items of each turn, with the names of tools."""
        turns: dict[int, list[dict[str, str | None]]] = {}
        for turn, item in await self._awaited(self._by_turn, branch_id):
            turns.setdefault(turn, []).append({"type": _type(item), "tool_name": _tool(item)})
        return turns

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """How often which tool was called in which turn: name, count, turn."""
        found: Counter[tuple[int, str]] = Counter()
        outputs: Counter[tuple[int, str]] = Counter()
        for turn, item in await self._awaited(self._by_turn, branch_id):
            name, kind = _tool(item), _type(item)
            if name is not None and kind.endswith(("_call", "mcp_approval_request")):
                found[turn, name] += 1
            elif name is not None and kind == "tool_search_output":
                outputs[turn, name] += 1
        for each in outputs.keys() - found.keys():  # searches that the model's side began
            found[each] = outputs[each]
        return [(name, count, turn) for (turn, name), count in sorted(found.items())]

    def _messages(self, branch: str | None) -> Sequence[dict[str, JSON]]:
        try:
            return self._store.get_messages(self._key_of(branch)).messages
        except (SessionNotFound, _NoBranch):
            return ()

    def _turns(self, branch: str | None) -> list[tuple[int, int, dict[str, JSON]]]:
        """Number, position and message of each turn."""
        users = [(place, each) for place, each in enumerate(self._messages(branch)) if each["role"] == "user"]
        return [(number, *found) for number, found in enumerate(users, 1)]

    def _described(self, branch: str | None, length: int | None) -> list[dict[str, Any]]:
        turns = self._turns(branch)
        if not turns:
            return []
        times = [*[None] * len(turns), *self._times(branch)][-len(turns) :]
        described = []
        for (number, _, message), said_at in zip(turns, times, strict=True):
            content = cast(Any, message.get("item") or message).get("content", "")
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            short = text if length is None or len(text) <= length else f"{text[:length]}..."
            described.append(
                {
                    "turn": number,
                    "content": short,
                    "full_content": content,
                    "timestamp": said_at,
                    "can_branch": True,
                }
            )
        return described

    def _times(self, branch: str | None) -> list[datetime]:
        """When the user said what is still there, as far as the log goes back."""
        standing: list[EventRecord] = []
        for event in self._store.get_events(self._key_of(branch), types=[*_MESSAGES, _SHORTENED]):
            data = cast(Any, event.data)
            if event.type == _SHORTENED:
                del standing[-data["removed"] :]
            elif data and "role" in data:
                standing.append(event)
        return [event.created_at for event in standing if event.type == "user_message"]

    def _by_turn(self, branch: str | None) -> list[tuple[int, TResponseInputItem]]:
        turn, found = 0, []
        for message in self._messages(branch):
            turn += message["role"] == "user"
            found += [(turn, item) for item in self._items([message])]
        return found

    # Usage

    async def store_run_usage(self, result: RunResultBase) -> None:
        """Keep what a run used, as that of the current turn, as long as that turn is there. As in the SDK, a
        failure is logged, and not raised."""
        try:
            usage = to_jsonable_python(result.context_wrapper.usage, fallback=str, exclude_none=True)
            await self._awaited(self._store_usage, {name: usage.get(name) for name in (*_COUNTS, *_DETAILS)})
        except Exception:
            logger.exception("The usage of a run was not stored.", extra={"session_id": self.session_id})

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """What a branch used, or all of them: `requests`, `input_tokens`, `output_tokens`, `total_tokens`,
        `total_turns`."""
        branches = [branch_id] if branch_id else list(await self._awaited(self._branches))
        found = [used for branch in branches for used in (await self._awaited(self._usage, branch)).values()]
        if not found:
            return None
        return {
            **{name: sum(used[name] or 0 for used in found) for name in _COUNTS},
            "total_turns": len(found),
        }

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """What a turn used, `{}` if that is not known; without a number what each turn used."""
        found = await self._awaited(self._usage, branch_id)
        if user_turn_number is not None:
            return found.get(user_turn_number, {})
        return [{"user_turn_number": turn, **used} for turn, used in sorted(found.items())]

    def _store_usage(self, usage: dict[str, JSON]) -> None:
        try:
            seq = self._store.get_session_head(self._key).head_seq
        except SessionNotFound:
            return
        turn = len(self._turns(None))
        if not turn:
            return
        told = {"user_turn": turn, "after_seq": seq, "openai_usage": usage}
        run = self._store.create_run(self._key, metadata=told)
        counted = {name: usage[name] for name in ("input_tokens", "output_tokens")}
        self._store.update_run_status(self._key, run.run_id, "completed", usage=counted)

    def _usage(self, branch: str | None) -> dict[int, dict[str, Any]]:
        """By turn, as far as the turn is there; of several runs of one turn the newest."""
        places = {number: place for number, place, _ in self._turns(branch)}
        if not places:
            return {}
        key = self._key_of(branch)
        shortened = [
            (event.seq, cast(Any, event.data)["count"])
            for event in self._store.get_events(key, types=[_SHORTENED])
        ]
        found: dict[int, dict[str, Any]] = {}
        for run in self._runs(key):
            told: Any = run.metadata
            place = places.get(told.get("user_turn"))
            after = told.get("after_seq", maxsize)
            if place is not None and not any(seq > after and count <= place for seq, count in shortened):
                found.setdefault(told["user_turn"], told["openai_usage"])
        return found

    def _runs(self, key: str) -> list[Run]:
        runs: list[Run] = []
        cursor = None
        try:
            while True:
                page = self._store.list_runs(key, limit=200, cursor=cursor)
                runs += page.items
                cursor = page.next_cursor
                if cursor is None:
                    return runs
        except SessionNotFound:
            return []


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part.get("text", "")) for part in content if isinstance(part, dict)]


def _type(item: Any) -> str:
    role = item.get("role")
    return role if role in ("user", "assistant") else str(item.get("type") or "other")


def _tool(item: Any) -> str | None:
    kind, name = item.get("type"), item.get("name")
    if kind in ("tool_search_call", "tool_search_output"):
        return "tool_search"
    if kind in _UNNAMED_CALLS:
        return str(kind)
    if kind in ("mcp_call", "mcp_approval_request") and item.get("server_label"):
        return f"{item['server_label']}.{name}" if name else str(item["server_label"])
    namespace = item.get("namespace")
    if name is None or namespace in (None, "", name):
        return None if name is None else str(name)
    return f"{namespace}.{name}"
