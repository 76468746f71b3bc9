"""Server-sent events: the frames on the wire."""

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
    """A stored event. Its number is the id with which a reader reconnects. `text` is its JSON."""
    return f"id: {seq}\ndata: {_one_line(text)}\n\n".encode()


def named(kind: str, frame: bytes) -> bytes:
    """The same for listeners of one event type."""
    return f"event: {kind}\n".encode() + frame


def fragment(item: Fragment) -> bytes:
    """A fragment. It has no id, so it never changes where a reader reconnects."""
    data = {
        "session_id": item.session_id,
        "type": "fragment",
        "data": item.data,
        "after_seq": item.after_seq,
        "turn_id": item.turn_id,
        "message_id": item.message_id,
        "index": item.index,
    }
    return f"event: fragment\ndata: {_one_line(documents.write(data))}\n\n".encode()


def place(seq: int) -> bytes:
    """Changes where a reader reconnects: after events it did not ask for."""
    return f"id: {seq}\n\n".encode()


def closed(reason: str) -> bytes:
    """The last event of a stream, with the reason."""
    return f'event: stream_closed\ndata: {{"type":"stream_closed","reason":"{reason}"}}\n\n'.encode()


def retry(seconds: float) -> bytes:
    """How long a reader waits before it reconnects."""
    return f"retry: {round(seconds * 1000)}\n\n".encode()


HEARTBEAT = b": still here\n\n"


def _one_line(text: str) -> str:
    """JSON has line breaks only between tokens, and there a space does as well."""
    return text.replace("\r", " ").replace("\n", " ")
