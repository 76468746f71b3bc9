"""What people think of answers."""

from typing import Self

from django.db import models

from helix_sessions.models.constraints import non_negative, one_of, session_key
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import FEEDBACK_RATINGS


class FeedbackQuerySet(models.QuerySet["Feedback"]):
    def rated(self, rating: str) -> Self:
        """Thumbs in this direction."""
        return self.filter(rating=rating)


class Feedback(models.Model):
    """A thumb up or down of one person on one message. The message is named by its event, which stays its own
    when the transcript is truncated and its position goes to another."""

    pk = models.CompositePrimaryKey("session_id", "message_seq", "author")
    session = session_key()
    message_seq = models.BigIntegerField()
    author = IdField(default="")
    position = models.BigIntegerField()
    rating = IdField(max_length=8)
    comment = DocumentField(null=True)
    created_at = models.DateTimeField()

    objects = FeedbackQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("rating", FEEDBACK_RATINGS, "helix_feedback_rating"),
            non_negative("helix_feedback_position", "position", "message_seq"),
        ]
        indexes = [models.Index(fields=["rating", "session"], name="helix_feedback_rating_idx")]

    def __str__(self) -> str:
        return f"message {self.position}: {self.rating}"
