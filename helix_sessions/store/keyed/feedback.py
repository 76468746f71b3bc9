"""Feedback: a thumb up or down of a person on an answer."""

from typing import Any

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, NotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store
from helix_sessions.types import FEEDBACK_RATINGS, Feedback, FeedbackRating

MAX_COMMENT = 2_000


def give_feedback(
    store: Store,
    session_id: str,
    position: int,
    rating: FeedbackRating | None,
    *,
    comment: str | None = None,
    by: str = "",
) -> Feedback | None:
    """Keep what a person thinks of an answer: `up` or `down`, in place of what they said before;
    `None` takes it back. `by` tells people apart. The version stays."""
    place = inputs.integer(position, "position")
    wanted = None if rating is None else inputs.choice(rating, FEEDBACK_RATINGS, "The rating")
    said = None if comment is None else inputs.text(comment, "The comment", limit=MAX_COMMENT)
    author = inputs.identifier(by, "by") if by else ""
    with store._write(session_id) as work:
        work.versioned = False
        key = work.session.session_id
        message = _answer(store.using, key, place, needed=wanted is not None)
        if message is None:
            return None
        rows = models.Feedback.objects.using(store.using)
        mine = rows.filter(session_id=key, message_seq=message.seq, author=author)
        before = mine.first()
        if wanted is None:
            if before is None:
                return None
            mine.delete()
        elif before is not None and (before.rating, before.comment) == (wanted, said):
            return _value(before)
        else:
            work.put(
                models.Feedback,
                message_seq=message.seq,
                author=author,
                position=place,
                rating=wanted,
                comment=None if said is None else documents.dump(said),
                created_at=work.now,
            )
        told = {"position": place, "message_seq": message.seq, "rating": wanted, "by": author}
        work.event("feedback_given", told)
        now = work.now
    if wanted is None:
        return None
    return Feedback(
        position=place, message_seq=message.seq, rating=wanted, comment=said, by=author, created_at=now
    )


def list_feedback(store: Store, session_id: str) -> list[Feedback]:
    """What people think of the answers of a session, by the order of the answers, also of those that are
    no longer in the transcript."""
    key = store._read(session_id, ("session_id",)).session_id
    rows = models.Feedback.objects.using(store.using).filter(session_id=key)
    return [_value(row) for row in rows.order_by("message_seq", "author")]


def _answer(using: str, session_id: str, position: int, *, needed: bool) -> models.Message | None:
    rows = models.Message.objects.using(using).visible().defer("content")
    message = rows.filter(session_id=session_id, position=position).first()
    if message is None and not needed:
        return None
    if message is None:
        raise NotFound(f"Session {session_id!r:.100} has no message {position}.")
    if message.role != "assistant":
        raise InvalidInput("Feedback is about the messages of an assistant.")
    return message


def _value(row: Any) -> Feedback:
    return Feedback(
        position=row.position,
        message_seq=row.message_seq,
        rating=row.rating,
        comment=row.comment,
        by=row.author,
        created_at=row.created_at,
    )
