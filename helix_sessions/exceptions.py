"""Every error that this package raises. One root; `code` is stable across releases."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar


class HelixSessionsError(Exception):
    """A call of helix_sessions failed."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[HelixSessionsError], args: tuple[Any, ...], values: dict[str, Any]) -> Any:
    """An error of another process, as it was raised."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class InvalidInput(HelixSessionsError, ValueError):
    """An argument is invalid."""

    code = "invalid_input"


class InvalidDocument(HelixSessionsError, ValueError):
    """A value is not a JSON document that can be stored exactly."""

    code = "invalid_document"


class InvalidWrites(HelixSessionsError, ValueError):
    """A write cannot be applied to the document."""

    code = "invalid_writes"


class InvalidCursor(HelixSessionsError, ValueError):
    """The cursor is not one of this call."""

    code = "invalid_cursor"


class NotFound(HelixSessionsError, LookupError):
    """It does not exist."""

    code = "not_found"


class SessionNotFound(NotFound):
    """There is no session with this id."""

    code = "session_not_found"

    def __init__(self, message: str | None = None, *, session_id: str | None = None) -> None:
        if message is None and session_id is not None:
            message = f"There is no session {session_id!r}."
        super().__init__(message)
        self.session_id = session_id


class SessionMoved(SessionNotFound):
    """The session is in another database, `cell`. Repeat the call there."""

    code = "session_moved"

    def __init__(self, message: str | None = None, *, cell: str, session_id: str | None = None) -> None:
        message = message or f"The session is in the database {cell!r} now. Repeat the call there."
        super().__init__(message, session_id=session_id)
        self.cell = cell


class RunNotFound(NotFound):
    """The session has no run with this id."""

    code = "run_not_found"


class CheckpointNotFound(NotFound):
    """The session has no checkpoint with this id."""

    code = "checkpoint_not_found"


class SubSessionRefNotFound(NotFound):
    """The session has no reference to this sub-session."""

    code = "sub_session_ref_not_found"


class UnknownToolCall(NotFound):
    """No session of the tree waits for this tool call, or ever did."""

    code = "unknown_tool_call"


class InputNotFound(NotFound):
    """The session's inbox never had an input with this id."""

    code = "input_not_found"


class ToolRuleNotFound(NotFound):
    """There is no tool rule with this id."""

    code = "tool_rule_not_found"


class ScheduleNotFound(NotFound):
    """There is no schedule with this id."""

    code = "schedule_not_found"


class WebhookNotFound(NotFound):
    """There is no webhook with this id, or it has no such delivery."""

    code = "webhook_not_found"


class InvalidAnswerLink(NotFound):
    """This link is invalid or has expired."""

    code = "invalid_answer_link"


class EventsArchived(NotFound):
    """These events are in an archive; the log begins later, with `first_available_seq`."""

    code = "events_archived"

    def __init__(self, *, first_available_seq: int) -> None:
        super().__init__(f"The log begins at event {first_available_seq}; what came before was archived.")
        self.first_available_seq = first_available_seq


class Conflict(HelixSessionsError):
    """The stored state does not allow this call."""

    code = "conflict"


class SessionExists(Conflict):
    """A session with this id exists already."""

    code = "session_exists"


class RunExists(Conflict):
    """The session has a run with this id already."""

    code = "run_exists"


class RunInProgress(Conflict):
    """The session has a running run; only one may run at a time."""

    code = "run_in_progress"


class RunEnded(Conflict):
    """The run has ended; it is not changed any more."""

    code = "run_ended"


class SubSessionRefExists(Conflict):
    """The session refers to this sub-session already, with other values."""

    code = "sub_session_ref_exists"


class CommitConflict(Conflict):
    """This checkpoint id was committed before, with other content."""

    code = "commit_conflict"


class ModeLocked(Conflict):
    """The mode of a session is written once, at its creation."""

    code = "mode_locked"


class SubmissionMismatch(Conflict):
    """The answer is not what the call waits for: another kind or question, or a result that does not fit."""

    code = "submission_mismatch"


class AnswerForbidden(HelixSessionsError):
    """The call waits for the decision of another user."""

    code = "answer_forbidden"


class NotResumable(Conflict):
    """The session is neither suspended nor stopped, so there is nothing to resume."""

    code = "not_resumable"


class FrameworkMismatch(Conflict):
    """The session holds messages that this framework's adapter cannot read."""

    code = "framework_mismatch"


class StillWaiting(Conflict):
    """The session waits for answers to tool calls, or for sub-sessions."""

    code = "still_waiting"

    def __init__(
        self,
        message: str | None = None,
        *,
        tool_call_ids: Iterable[str] = (),
        sub_session_ids: Iterable[str] = (),
    ) -> None:
        self.tool_call_ids = tuple(tool_call_ids)
        self.sub_session_ids = tuple(sub_session_ids)
        super().__init__(
            message
            or f"The session waits for {len(self.tool_call_ids)} answers to tool calls"
            f" and for {len(self.sub_session_ids)} sub-sessions."
        )


class InputConflict(Conflict):
    """The input id is used for another input, or the input is not pending any more."""

    code = "input_conflict"


class InboxFull(Conflict):
    """The session has reached its limit of pending inputs."""

    code = "inbox_full"


class Fenced(Conflict):
    """The lease is not the session's newest any more; nothing was written."""

    code = "fenced"


class LeaseHeld(Conflict):
    """Another owner drives the session."""

    code = "lease_held"

    def __init__(self, owner: str, expires_at: datetime) -> None:
        super().__init__(f"{owner!r} drives the session until {expires_at.isoformat()}.")
        self.owner = owner
        self.expires_at = expires_at


class StaleState(Conflict):
    """The session is not at the version that the caller expected."""

    code = "stale_state"

    def __init__(self, *, expected_version: int, current_version: int, current_status: str) -> None:
        super().__init__(
            f"The caller expected version {expected_version}; "
            f"the session is {current_status} at version {current_version}."
        )
        self.expected_version = expected_version
        self.current_version = current_version
        self.current_status = current_status


class SessionConflict(StaleState):
    """Another caller saved the session between its load and its save; nothing of this action was saved."""

    code = "session_conflict"


class ForeignNamespace(HelixSessionsError):
    """The namespace belongs to another user, or to all; nothing was read or written."""

    code = "foreign_namespace"


class MemoryExists(Conflict):
    """There is a memory with this namespace and key already."""

    code = "memory_exists"


class SearchTooWide(HelixSessionsError):
    """More memories would have to be read for this search than are read at once; give a longer prefix."""

    code = "search_too_wide"


class NotConfigured(HelixSessionsError):
    """A setting that this call needs is missing, or names something that does not exist."""

    code = "not_configured"


class BlobNotFound(NotFound):
    """There is no attachment with this digest."""

    code = "blob_not_found"


class BlobTooLarge(HelixSessionsError, ValueError):
    """The attachment is larger than `BLOB_MAX_BYTES`."""

    code = "blob_too_large"


class MediaTypeRefused(HelixSessionsError, ValueError):
    """The attachment's media type is not one of `BLOB_MEDIA_TYPES`."""

    code = "media_type_refused"


class ContentUnreadable(HelixSessionsError):
    """Stored content cannot be decrypted: its key is not configured, or it was changed from outside."""

    code = "content_unreadable"

    def __init__(self, message: str | None = None, *, key_id: str = "") -> None:
        super().__init__(message or "This content cannot be decrypted.")
        self.key_id = key_id


class InvalidExport(HelixSessionsError, ValueError):
    """The import is not a complete export of sessions."""

    code = "invalid_export"


class SessionBusy(HelixSessionsError):
    """Timeout waiting for the session's row lock, or a deadlock; nothing was written."""

    code = "session_busy"


class StoreUnavailable(HelixSessionsError):
    """The database is unavailable: no space, no connection, or a timeout. Nothing was written."""

    code = "store_unavailable"


class NotMigrated(StoreUnavailable):
    """The tables of helix_sessions are missing, or older than the code. Run `manage.py migrate`."""

    code = "not_migrated"


class IdempotencyInProgress(Conflict):
    """A request with this idempotency key is in progress; retry in a moment."""

    code = "idempotency_in_progress"


class IdempotencyKeyReused(HelixSessionsError, ValueError):
    """This idempotency key was used for another request."""

    code = "idempotency_key_reused"


class ContextUnavailable(HelixSessionsError):
    """A source of the context, one of `keys`, could not be observed, and the session has no context yet."""

    code = "context_unavailable"

    def __init__(self, message: str | None = None, *, keys: Iterable[str] = ()) -> None:
        self.keys = tuple(keys)
        super().__init__(message or f"These sources of the context are unavailable: {', '.join(self.keys)}.")


class ContextOverflow(HelixSessionsError):
    """The model refused a context as too long. An agent raises it, before it has stored anything."""

    code = "context_overflow"


class TransientError(HelixSessionsError):
    """What failed may work when it is tried again, `retry_after` seconds. An agent or a tool raises it."""

    code = "transient_error"

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
