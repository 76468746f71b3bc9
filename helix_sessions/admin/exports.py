"""Sessions as a download of JSON Lines."""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from io import TextIOWrapper
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import FileResponse
from django.utils import timezone

from helix_sessions.store import SessionStore

IN_MEMORY = 5_000_000
PAGE_SIZE = 200


def download(store: SessionStore, ids: Iterable[str]) -> FileResponse:
    """The sessions, written to a temporary file first, so that an error leaves no partial download."""
    spool = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (the response closes it)
    text = TextIOWrapper(spool, encoding="utf-8", newline="\n", write_through=True)
    _write(store, text, list(ids))
    text.detach()
    spool.seek(0)
    name = f"sessions-{timezone.now():%Y%m%d-%H%M%S}.jsonl"
    return FileResponse(spool, as_attachment=True, filename=name, content_type="application/x-ndjson")


def _write(store: Any, text: TextIOWrapper, ids: list[str]) -> None:
    for session_id in ids:
        state = store.load_state(session_id)
        _line(text, "session", asdict(state))
        for seq in range(1, state.head_seq + 1, PAGE_SIZE):
            for event in store.get_events(session_id, seq, seq + PAGE_SIZE):
                _line(text, "event", asdict(event))


def _line(text: TextIOWrapper, kind: str, value: dict[str, Any]) -> None:
    text.write(json.dumps({"kind": kind, **value}, cls=DjangoJSONEncoder, ensure_ascii=False) + "\n")
