"""Events as entries of a timeline, with tool calls joined with their results."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext_lazy as _

from helix_sessions.admin.documents import Preview, shown, shown_beginning
from helix_sessions.admin.pages.sentences import sentence
from helix_sessions.messages.tool_ledger import ToolCall, calls_in, logged_call

_MESSAGES = {
    "user_message": "user",
    "assistant_message": "assistant",
    "system_message": "system",
    "tool_message": "tool",
}
_RESULTS = ("tool_responded", "tool_error", "tool_message")
_FAILURES = ("tool_error", "model_call_failed", "llm_error", "error")
_BANDS = ("run_started", "run_finished", "session_started", "session_woken", "session_ended")
_MARKED = (
    "status_changed",
    "interrupt_requested",
    "interrupt_cleared",
    "operator_action",
    "expiry_changed",
    "messages_truncated",
    "compacted",
    "subagent_spawned",
    "subagent_result",
)

KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "": (_("Everything"), ()),
    "conversation": (_("Conversation"), tuple(_MESSAGES)),
    "tools": (
        _("Tools"),
        ("assistant_message", "tool_called", "tool_responded", "tool_error", "tool_message"),
    ),
    "lifecycle": (_("Lifecycle"), (*_BANDS, *_MARKED, "run_updated", "checkpoint_created")),
    "errors": (_("Errors and stops"), (*_FAILURES, "status_changed", "interrupt_requested", "run_finished")),
}
"""The parts of a timeline: a name, its label, and the types of its events."""

TEXT_SHOWN = 4_000


@dataclass(slots=True, kw_only=True)
class Call:
    """A tool call and its outcome."""

    call_id: str
    name: str
    arguments: Preview
    at: datetime
    events: list["Entry"] = field(default_factory=list)
    """Its events."""
    result: "Entry | None" = None

    @property
    def is_error(self) -> bool:
        """Whether it failed."""
        return self.result is not None and self.result.is_error

    @property
    def took(self) -> timedelta | None:
        """From the call to the first word of its result."""
        ends = [entry.at for entry in self.events if entry.type in _RESULTS]
        return min(ends) - self.at if ends else None


@dataclass(slots=True, kw_only=True)
class Entry:
    """One event."""

    seq: int
    type: str
    at: datetime
    run_id: str | None
    turn_id: str | None
    document: Preview | None
    is_truncated: bool
    calls: list[Call] = field(default_factory=list)
    after: timedelta | None = None
    """How long after the entry before it."""
    position: int | None = None
    """Of a message in the transcript."""
    feedback: list[Any] = field(default_factory=list)
    """What people think of it."""

    @property
    def look(self) -> str:
        """How it is shown: a message, a call, a band across the page, a marked line or a quiet one."""
        if self.type in _MESSAGES and (self.data or self.calls):
            return "message"
        if self.calls or self.type in _RESULTS:
            return "call"
        if self.type in _BANDS:
            return "band"
        return "marked" if self.type in _MARKED or self.type in _FAILURES else "quiet"

    @property
    def data(self) -> dict[str, Any]:
        """Its data, if that is an object."""
        value = self.document.value if self.document else None
        return value if isinstance(value, dict) else {}

    @property
    def role(self) -> str:
        """Whose message it is."""
        return _MESSAGES.get(self.type, "")

    @property
    def text(self) -> str:
        """The words of a message."""
        return _text(self.data.get("content"))[:TEXT_SHOWN]

    @property
    def has_more_text(self) -> bool:
        """Whether the words go on."""
        return len(_text(self.data.get("content"))) > TEXT_SHOWN or bool(
            self.document and self.document.is_cut
        )

    @property
    def sentence(self) -> str:
        """What happened, in a few words."""
        return sentence(self.type, self.data)

    @property
    def is_error(self) -> bool:
        """Whether it reports an error."""
        return self.type in _FAILURES or self.data.get("is_error") is True or self.data.get("to") == "failed"

    @property
    def outcome(self) -> Preview | None:
        """What a tool answered, without the envelope."""
        for key in ("content", "result", "error", "output"):
            if key in self.data:
                return shown(self.data[key])
        return self.document

    @property
    def call_id(self) -> str | None:
        """The tool call it belongs to."""
        found = self.data.get("tool_call_id")
        return found if isinstance(found, str) else None

    @property
    def sub_session_id(self) -> str | None:
        """The sub-session it is about."""
        found = self.data.get("sub_session_id")
        return found if isinstance(found, str) and self.type.startswith("subagent_") else None


def entries_of(rows: list[dict[str, Any]]) -> list[Entry]:
    """The entries of rows in the order of their numbers; what belongs to a call is under the call."""
    calls: dict[str, Call] = {}
    found = []
    for entry in map(_entry, rows):
        call = calls.get(entry.call_id) if entry.call_id else None
        if entry.type in ("tool_called", *_RESULTS) and call is not None and not _begins_again(entry, call):
            call.events.append(entry)
            if entry.type in _RESULTS and (call.result is None or entry.type == "tool_message"):
                call.result = entry
            continue
        entry.calls = list(_calls(entry))
        calls.update((call.call_id, call) for call in entry.calls)
        found.append(entry)
    return found


def _begins_again(entry: Entry, call: Call) -> bool:
    """Some providers reuse call ids in each turn."""
    return entry.type == "tool_called" and call.result is not None


def _entry(row: dict[str, Any]) -> Entry:
    text = row["text"]
    return Entry(
        seq=row["seq"],
        type=row["type"],
        at=row["created_at"],
        run_id=row["run_id"],
        turn_id=row["turn_id"],
        document=None if text is None else shown_beginning(text, row["size"]),
        is_truncated=bool(row.get("truncated")),
        position=row.get("message_position"),
    )


def _calls(entry: Entry) -> Iterator[Call]:
    if entry.type == "assistant_message":
        for made in calls_in({**entry.data, "role": "assistant"}):
            yield _listed(made, entry)
    elif entry.type == "tool_called" and (call := logged_call(entry.data)) is not None:
        yield _listed(call, entry)


def _listed(call: ToolCall, entry: Entry) -> Call:
    return Call(call_id=call["id"], name=call["name"], arguments=shown(call["arguments"]), at=entry.at)


def _text(content: Any) -> str:
    """The words in a message's content: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        return "\n\n".join(text for text in texts if isinstance(text, str))
    return ""
