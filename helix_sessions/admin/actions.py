"""The table of the operator's actions: label, permission, sentences, and the call of the store."""

import logging
from typing import Any

from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from helix_sessions.admin.action import Action, Answers, NotApplicable
from helix_sessions.admin.bulk_answers import BULK_ANSWERS
from helix_sessions.admin.forms import ApprovalForm, BranchForm, CallForm, ExpiryForm, ResultForm, new_expiry
from helix_sessions.admin.presentation import is_ended
from helix_sessions.admin.repair_actions import REPAIR_ACTIONS
from helix_sessions.admin.run_actions import RUN_ACTIONS, if_held, reactivate, require
from helix_sessions.admin.runtime_actions import RUNTIME_ACTIONS
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import Session
from helix_sessions.runtime.compaction import compact_by_hand
from helix_sessions.store import SessionStore
from helix_sessions.store.calls.stops import interrupt_waiting
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.maintenance.expiry import expire_now
from helix_sessions.store.sessions.delete import delete_tree
from helix_sessions.types import SessionStatus

_log = logging.getLogger("helix_sessions.admin")


def _unless_ended(session: Session) -> str:
    return _now("It has ended.") if is_ended(session) else ""


def _if_staged(session: Session) -> str:
    return "" if session.staged_count else _now("Nothing is staged.")


def _if_any_messages(session: Session) -> str:
    return "" if session.message_count else _now("It has no messages.")


def _expire(store: SessionStore, session: Session, answers: Answers) -> int:
    try:
        return expire_now(store, session.session_id)
    except HelixSessionsError:
        raise
    except Exception as error:
        _log.exception("Session %s could not be expired", session.session_id)
        raise NotApplicable(_now("Its snapshots could not be deleted: %s") % type(error).__name__) from error


def _set_expiry(store: SessionStore, session: Session, answers: Answers) -> None:
    store.set_expiry(session.session_id, new_expiry(answers, session.expires_at))


def _interrupt(store: SessionStore, session: Session, answers: Answers) -> None:
    key, reason = session.session_id, answers["reason"]
    if not interrupt_waiting(store, key, reason):
        store.set_interrupt_flag(key, reason)


def _fail(store: SessionStore, session: Session, answers: Answers) -> None:
    key, reason = session.session_id, answers["reason"]
    open_statuses: list[SessionStatus] = ["active", "paused", "interrupted"]
    require(store.compare_and_set_status(key, open_statuses, "failed", failure_reason=reason))


def _branch(store: SessionStore, session: Session, answers: Answers) -> str:
    branch = answers["new_id"] or new_id()
    store.clone_session(session.session_id, branch, checkpoint_id=answers["checkpoint_id"])
    return branch


def _discard(store: SessionStore, session: Session, answers: Answers) -> int:
    return store.discard_staging(session.session_id)


def _compact(store: SessionStore, session: Session, answers: Answers) -> int:
    try:
        compaction = compact_by_hand(store, session.session_id)
    except HelixSessionsError:
        raise
    except Exception as error:
        _log.exception("The summarizer failed on session %s", session.session_id)
        raise NotApplicable(_now("The summarizer failed: %s") % type(error).__name__) from error
    if compaction is None:
        raise NotApplicable(_now("There is nothing older to summarize, or a compaction is in progress."))
    return compaction.message_count


def _delete(store: SessionStore, session: Session, answers: Answers) -> set[str]:
    return delete_tree(store, session.session_id)


def _approve(store: SessionStore, session: Session, answers: Answers) -> None:
    more = {"arguments": answers["arguments"], "remember": answers.get("remember") or None}
    _submit(store, session, answers, approved=True, reason=answers["reason"], **more)


def _deny(store: SessionStore, session: Session, answers: Answers) -> None:
    _submit(store, session, answers, approved=False, reason=answers["reason"])


def _answer(store: SessionStore, session: Session, answers: Answers) -> None:
    if answers["is_error"]:
        _submit(store, session, answers, error=answers["reason"])
    else:
        _submit(store, session, answers, result=answers["result"])


def _submit(store: SessionStore, session: Session, answers: Answers, **answer: Any) -> None:
    """Answer the call that the operator saw, not a later one with the same id."""
    state = store.load_state(session.session_id)
    entry = (state.pending_client_tool_calls or {}).get(answers["call"])
    if not isinstance(entry, dict) or str(entry.get("requested_at")) != answers["asked_at"]:
        raise NotApplicable(_now("This call does not wait any more."))
    submission = store.submit_tool_result(
        session.session_id,
        answers["call"],
        by=answers["by"],
        arguments_digest=answers["arguments_digest"] or None,
        expected_version=state.version,
        **answer,
    )
    if submission.outcome != "accepted":
        raise NotApplicable(_now("It has an answer already."))


def _if_waiting(session: Session) -> str:
    return "" if session.awaiting_client else _now("No call waits for an answer.")


ACTIONS = {
    action.name: action
    for action in (
        *RUN_ACTIONS,
        *REPAIR_ACTIONS,
        *BULK_ANSWERS,
        Action(
            name="interrupt",
            label=_("Interrupt"),
            icon="stop",
            promise=ngettext_lazy(
                "%(count)d session will be asked to stop.",
                "%(count)d sessions will be asked to stop.",
                "count",
            ),
            report=ngettext_lazy(
                "%(count)d session was asked to stop.", "%(count)d sessions were asked to stop.", "count"
            ),
            explanation=_(
                "The worker of a session sees the request before its next step and stops cleanly. A process "
                "that died will never see it: such a session can be failed. One that waits for others is "
                "stopped at once, with its sub-agents; what is answered later has no effect."
            ),
            refusal=_unless_ended,
            perform=_interrupt,
        ),
        Action(
            name="reactivate",
            label=_("Make active again"),
            icon="play",
            promise=ngettext_lazy(
                "%(count)d session will be active again.", "%(count)d sessions will be active again.", "count"
            ),
            report=ngettext_lazy(
                "%(count)d session is active again.", "%(count)d sessions are active again.", "count"
            ),
            explanation=_(
                "Paused and interrupted sessions become active, if that is what they still are then. "
                "A worker takes up what waits in the inbox; a turn that was stopped is not run again."
            ),
            refusal=if_held,
            perform=reactivate,
        ),
        Action(
            name="approve_call",
            label=_("Approve"),
            icon="check",
            promise=_("The call below will be approved."),
            report=_("The call was approved."),
            explanation=_(
                "With the last answer a worker resumes the session and executes the call. You approve what "
                "this page shows: if the call has changed meanwhile, nothing happens. An answer cannot be "
                "taken back."
            ),
            refusal=_if_waiting,
            perform=_approve,
            form=ApprovalForm,
            is_for_one=True,
            answers="approval",
        ),
        Action(
            name="deny_call",
            label=_("Deny"),
            icon="cross",
            promise=_("The call below will be denied."),
            report=_("The call was denied."),
            explanation=_(
                "The agent learns that the call was denied, and your reason. An answer cannot be withdrawn."
            ),
            refusal=_if_waiting,
            perform=_deny,
            form=CallForm,
            is_for_one=True,
            is_dangerous=True,
            answers="approval",
        ),
        Action(
            name="answer_call",
            label=_("Answer"),
            icon="person",
            promise=_("The call below will be answered."),
            report=_("The call was answered."),
            explanation=_(
                "You answer in the place of the client that the call was meant for, with a result or with an "
                "error. An answer cannot be withdrawn."
            ),
            refusal=_if_waiting,
            perform=_answer,
            form=ResultForm,
            is_for_one=True,
            answers="client_tool",
        ),
        Action(
            name="expire",
            label=_("Expire now"),
            icon="clock",
            promise=ngettext_lazy(
                "%(count)d session will expire now.", "%(count)d sessions will expire now.", "count"
            ),
            report=ngettext_lazy(
                "%(count)d session has expired.", "%(count)d sessions have expired.", "count"
            ),
            explanation=_(
                "As the clean-up would: the snapshots of the workspace are deleted, and the session ends as "
                "failed, with the reason session_expired. Nothing brings the snapshots back."
            ),
            refusal=_unless_ended,
            perform=_expire,
            takes_time=True,
            is_dangerous=True,
        ),
        Action(
            name="set_expiry",
            label=_("Set or extend expiry"),
            icon="calendar",
            promise=ngettext_lazy(
                "%(count)d session gets another expiry.", "%(count)d sessions get another expiry.", "count"
            ),
            report=ngettext_lazy(
                "%(count)d session has another expiry.", "%(count)d sessions have another expiry.", "count"
            ),
            explanation=_("A session that has expired and is extended is safe from the next cleanup."),
            refusal=_unless_ended,
            perform=_set_expiry,
            form=ExpiryForm,
        ),
        Action(
            name="branch",
            label=_("Branch"),
            icon="branch",
            promise=ngettext_lazy(
                "%(count)d session will be branched.", "%(count)d sessions will be branched.", "count"
            ),
            report=ngettext_lazy(
                "%(count)d session was branched.", "%(count)d sessions were branched.", "count"
            ),
            explanation=_(
                "A new session with the state and the messages of this one, which goes on as it is."
            ),
            perform=_branch,
            form=BranchForm,
            is_for_one=True,
        ),
        *RUNTIME_ACTIONS,
        Action(
            name="compact",
            label=_("Compact"),
            icon="broom",
            promise=ngettext_lazy(
                "The older messages of %(count)d session will be summarized for the model.",
                "The older messages of %(count)d sessions will be summarized for the model.",
                "count",
            ),
            report=ngettext_lazy(
                "%(count)d session was compacted.", "%(count)d sessions were compacted.", "count"
            ),
            explanation=_(
                "The model sees a summary in their place. The transcript keeps every message. The summarizer "
                "of this site is asked now, which may take a while and cost money."
            ),
            refusal=_if_any_messages,
            perform=_compact,
            is_for_one=True,
            takes_time=True,
        ),
        Action(
            name="discard_staging",
            label=_("Discard staging"),
            icon="broom",
            promise=ngettext_lazy(
                "The staged writes of %(count)d session will be lost.",
                "The staged writes of %(count)d sessions will be lost.",
                "count",
            ),
            report=ngettext_lazy(
                "The staged writes of %(count)d session were discarded.",
                "The staged writes of %(count)d sessions were discarded.",
                "count",
            ),
            explanation=_(
                "What tools have written for a step that was not committed yet is forgotten. A step that is "
                "still running commits without it."
            ),
            refusal=_if_staged,
            perform=_discard,
            is_dangerous=True,
        ),
        Action(
            name="export",
            label=_("Export"),
            icon="download",
            promise=ngettext_lazy(
                "%(count)d session will be exported as JSON Lines.",
                "%(count)d sessions will be exported as JSON Lines.",
                "count",
            ),
            report=ngettext_lazy(
                "%(count)d session was exported.", "%(count)d sessions were exported.", "count"
            ),
            explanation=_(
                "The file holds everything the sessions hold, with nothing masked. Keep it accordingly."
            ),
            perform=lambda store, session, answers: None,
            is_download=True,
        ),
        Action(
            name="fail",
            label=_("Fail"),
            icon="cross",
            promise=ngettext_lazy(
                "%(count)d session will be failed.", "%(count)d sessions will be failed.", "count"
            ),
            report=ngettext_lazy("%(count)d session was failed.", "%(count)d sessions were failed.", "count"),
            explanation=_(
                "The session ends as failed, with your reason, and so does the run it may be in. Agents do "
                "not go on with a failed session."
            ),
            refusal=_unless_ended,
            perform=_fail,
            is_dangerous=True,
        ),
        Action(
            name="delete",
            label=_("Delete"),
            icon="trash",
            promise=ngettext_lazy(
                "%(count)d session will be deleted with its tree of sub-sessions.",
                "%(count)d sessions will be deleted with their trees of sub-sessions.",
                "count",
            ),
            report=ngettext_lazy(
                "%(count)d session was deleted.", "%(count)d sessions were deleted.", "count"
            ),
            explanation=_(
                "Messages, runs, checkpoints and logs go too, and nothing brings them back. What remains is "
                "the entry in the admin's log. Export first what may be needed."
            ),
            perform=_delete,
            is_dangerous=True,
            leaves_session=False,
        ),
    )
}
