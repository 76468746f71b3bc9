"""How far the transcript and the graph have come with each other.

A graph's state is in its checkpoints, what was said is in the transcript, and a process may die between the
two. So each message of the graph says which checkpoint it comes from, how many of the graph's messages are
told with it, and how much of the transcript the graph had been given; and each checkpoint says in its
metadata which of these messages came before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from helix_sessions.messages.tool_ledger import calls_in, results_in
from helix_sessions.store import SessionStore

KEY = "graph"
"""The key of a mark in a message."""
_PAGE = 50
_BACK = ("session_rewound", "messages_truncated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a message of the graph says about it."""

    checkpoint: str = ""
    told: int = 0
    """How many of the graph's messages."""
    last: str | None = None
    """The id of the last of them."""
    given: int = 0
    """How many messages of the transcript."""
    said: str | None = None
    """The id of an answer whose text is told, and whose calls are not yet."""
    waits: Mapping[str, Any] = field(default_factory=dict)
    """What the calls of the message are about that a person or a client answers: interrupts by call id."""

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, {})}

    def place_in(self, messages: Sequence[Any]) -> int:
        """Where in the graph's messages the next begin that are not told."""
        if self.last is not None:
            for number in range(len(messages) - 1, -1, -1):
                if messages[number].id == self.last:
                    return number + 1
        return min(self.told, len(messages))


NONE = Mark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The end of a transcript, from the last message of the graph on."""

    total: int
    mark: Mark = NONE
    tail: tuple[tuple[int, dict[str, Any]], ...] = ()
    """What was said since the graph was given the transcript, by position, without the graph's own."""
    answers: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The tool messages that answer the calls of the last message of the graph."""

    def ungiven(self, given: int) -> list[dict[str, Any]]:
        """What the graph has not been given."""
        return [message for position, message in self.tail if position >= given]


def read(store: SessionStore, session_id: str) -> Said:
    """The transcript, back to what the graph was given when it spoke last."""
    found: list[tuple[int, dict[str, Any]]] = []
    mark: Mark | None = None
    own: set[str] = set()
    total = offset = 0
    more = True
    while more:
        page = store.get_messages(session_id, offset=offset, limit=_PAGE, newest_first=True)
        total = page.total if offset == 0 else total
        for message in page.messages:
            position = total - offset - 1
            offset += 1
            if mark is not None and position < mark.given:
                more = False
                break
            if KEY in message:
                own |= {call["id"] for call in calls_in(message)}
                mark = mark or Mark(**message[KEY])
            found.append((position, message))
        more = more and page.has_more
    answers = {call: message for _, message in found for call in results_in(message)}
    tail = [(place, each) for place, each in found if KEY not in each and not own & {*results_in(each)}]
    mark = mark or NONE
    return Said(
        total=total,
        mark=mark,
        tail=tuple(reversed(tail)),
        answers={call: answers[call] for call in mark.waits if call in answers},
    )


def was_rewound(store: SessionStore, session_id: str, since: int) -> bool:
    """Whether messages were taken back since an event."""
    return bool(store.get_events(session_id, from_seq=since + 1, types=list(_BACK), limit=1))
