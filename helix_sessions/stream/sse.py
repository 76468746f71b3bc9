"""Server-sent events: how what a reader gets is written to the wire."""

from helix_sessions.content import documents
from helix_sessions.types import Fragment

CONTENT_TYPE = "text/event-stream"

HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    # Compressing middleware would hold events back until it has a block full of them.
    "Content-Encoding": "identity",
}


def numbered(seq: int, text: str) -> bytes:
    """A stored event: its number is the id a reader comes back with. `text` is its JSON."""
    return f"id: {seq}\ndata: {_one_line(text)}\n\n".encode()


def named(kind: str, frame: bytes) -> bytes:
    """The same for those who listen for events of one type."""
    return f"event: {kind}\n".encode() + frame


def fragment(item: Fragment) -> bytes:
    """A fragment has no id, so it never moves the place a reader comes back to."""
    data = {"session_id": item.session_id, "type": "fragment", "data": item.data, "after_seq": item.after_seq}
    return f"event: fragment\ndata: {_one_line(documents.write(data))}\n\n".encode()


def place(seq: int) -> bytes:
    """Moves the place a reader comes back to, past events it did not want."""
    return f"id: {seq}\n\n".encode()


def closed(reason: str) -> bytes:
    """The last event: nothing will come any more, and why."""
    return f'event: stream_closed\ndata: {{"type":"stream_closed","reason":"{reason}"}}\n\n'.encode()


def retry(seconds: float) -> bytes:
    """How long a reader waits before it comes back."""
    return f"retry: {round(seconds * 1000)}\n\n".encode()


HEARTBEAT = b": still here\n\n"


def _one_line(text: str) -> str:
    """JSON has line breaks only between tokens, and there a space does as well."""
    return text.replace("\r", " ").replace("\n", " ")
