"""Packets of fragments: what goes in one notification."""

from helix_sessions.content import documents
from helix_sessions.types import Fragment

MAX_PAYLOAD = 7_500
"""PostgreSQL takes less than 8,000 bytes."""

FRAGMENT_MARK = "\n"
"""The prefix of a fragment's payload, with which no session id begins."""


class Packet:
    """Fragments that go in one notification: one, or pieces of a message that follow each other."""

    def __init__(self, fragment: Fragment, text: str) -> None:
        self._first = fragment
        self._texts = [text]
        self._head = documents.write(
            [
                fragment.session_id,
                fragment.after_seq,
                fragment.turn_id,
                fragment.message_id,
                fragment.index,
            ]
        )
        self.size = len(self._head.encode()) + len(text.encode()) + 8

    def add(self, fragment: Fragment, text: str) -> bool:
        """Take one more, if it follows and there is room."""
        size = self.size + len(text.encode()) + 1
        expected = (self._first.index or 0) + len(self._texts)
        if size > MAX_PAYLOAD or fragment.index != expected or fragment.after_seq != self._first.after_seq:
            return False
        self._texts.append(text)
        self.size = size
        return True

    def payload(self) -> str:
        return f"{FRAGMENT_MARK}[{self._head},[{','.join(self._texts)}]]"


def fragments_of(payload: str) -> list[Fragment]:
    """The fragments of a packet."""
    (session_id, after_seq, turn_id, message_id, first), pieces = documents.load(payload)
    return [
        Fragment(
            session_id=session_id,
            data=data,
            after_seq=after_seq,
            turn_id=turn_id,
            message_id=message_id,
            index=None if first is None else first + place,
        )
        for place, data in enumerate(pieces)
    ]
