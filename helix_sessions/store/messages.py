"""The transcript: appended, read in pages, truncated."""

from functools import cache

from helix_sessions import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Message, Session
from helix_sessions.store import inputs
from helix_sessions.store.base import StoreBase, session_key
from helix_sessions.store.database import fetch
from helix_sessions.store.tables import table
from helix_sessions.store.unit import Work
from helix_sessions.types import UNSET, AppendResult, MessagePage
from helix_sessions.types import Messages as MessageList

_EVERYTHING = 2**60
"""More than any transcript has, and far from overflowing in the database's arithmetic."""


@cache
def _page_sql(vendor: str, newest_first: bool) -> str:
    """A range of the transcript with its total, as of one moment. Without rows there is no session."""
    if newest_first:
        positions = '"position" < s."message_count" - %s AND m."position" >= s."message_count" - %s'
    else:
        positions = '"position" >= %s AND m."position" < %s'
    return (
        f'SELECT s."message_count", {table(Message).selection(vendor, ["content"], "m.")}'  # noqa: S608
        f" FROM {table(Session).name} s LEFT JOIN {table(Message).name} m"
        f' ON m."session_id" = s."session_id" AND m."truncated_seq" IS NULL AND m.{positions}'
        f' WHERE s."session_id" = %s ORDER BY m."position"{" DESC" if newest_first else ""}'
    )


class Messages(StoreBase):
    """Messages."""

    def append_messages(
        self,
        session_id: str,
        messages: MessageList,
        *,
        run_id: str | None = None,
        expected_version: int | None = None,
    ) -> AppendResult:
        """Add messages to the end of the transcript."""
        checked = inputs.messages(messages)
        run = inputs.optional_identifier(run_id, "run_id")

        def append(work: Work) -> None:
            for role, text in checked:
                work.message(role, text, run_id=UNSET if run is None else run)

        work, _ = self._decide(session_id, append, expected_version)
        session = work.session
        return AppendResult(
            first_position=session.message_count - len(checked),
            message_count=session.message_count,
            version=session.version,
            head_seq=session.head_seq,
        )

    def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> MessagePage:
        """A range of the transcript, exactly as given; `offset` counts from the end it starts at."""
        total, texts = self._message_texts(session_id, offset, limit, newest_first)
        return MessagePage(
            messages=documents.load_all(texts), total=total, has_more=offset + len(texts) < total
        )

    def _message_texts(
        self, session_id: str, offset: int, limit: int | None, newest_first: bool
    ) -> tuple[int, list[str]]:
        start = min(inputs.integer(offset, "offset"), _EVERYTHING)
        most = _EVERYTHING if limit is None else min(inputs.integer(limit, "limit"), _EVERYTHING)
        connection = self._connection
        sql = _page_sql(connection.vendor, inputs.flag(newest_first, "newest_first"))
        rows = fetch(connection, sql, [start, start + most, session_key(session_id)])
        if not rows:
            raise SessionNotFound(f"There is no session {session_id!r}.")
        return rows[0][0], [text for _, text in rows if text is not None]

    def get_message_count(self, session_id: str) -> int:
        """How many messages the transcript has."""
        return int(self._read(session_id, ("message_count",)).message_count)

    def truncate_messages(self, session_id: str, count: int, *, expected_version: int | None = None) -> int:
        """Keep the first `count` messages; returns how many went. They stay readable in the event log."""
        kept = inputs.integer(count, "count")
        with self._write(session_id, expected_version) as work:
            removed: int = max(0, work.session.message_count - kept)
            if removed:
                seq = work.event("messages_truncated", {"count": kept, "removed": removed})
                values = [seq, work.session.session_id, kept]
                work.statement(
                    f'UPDATE {table(Message).name} SET "truncated_seq" = %s'  # noqa: S608
                    ' WHERE "session_id" = %s AND "position" >= %s AND "truncated_seq" IS NULL',
                    [str(value) for value in values] if work.connection.vendor == "postgresql" else values,
                )
                work.change(message_count=kept)
        return removed
