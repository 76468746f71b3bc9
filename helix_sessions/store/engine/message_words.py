"""The words of messages for the search in transcripts: whether they are kept, and which."""

from collections.abc import Sequence

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.content import documents, encryption
from helix_sessions.messages import words
from helix_sessions.models import MessageWords
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import insert_sql

_COLUMNS = ("session_id", "seq", "searchable")


def are_kept() -> bool:
    """Whether the words of new messages are kept: encrypted content has none that a database could see."""
    if not conf.TRANSCRIPT_SEARCH:
        return False
    ring = encryption.keyring()
    return ring is None or ring.active is None


def words_in(text: str) -> str:
    """The words of a message that is given as its text; empty if it has none."""
    return words.words_of_message(documents.load(text), documents.secret_keys())


def add(connection: BaseDatabaseWrapper, messages: Sequence[tuple[str, int, str]]) -> None:
    """Keep the words of messages that are stored, each given as session, number and text. One without words
    has a row too, by which it is known to have none."""
    params = [value for key, seq, text in messages for value in (key, seq, words_in(text))]
    sql = insert_sql(MessageWords, _COLUMNS, len(messages), skipping=True)
    execute(connection, sql, dialect_of(connection).parameters(params), prepare=False)
