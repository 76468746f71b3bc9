"""What the runtime tells: signals, in the order of what happened."""

from functools import partial
from typing import Any

from django.db import connections
from django.dispatch import Signal

from helix_sessions import signals
from helix_sessions.store.engine.connection import after_commit
from helix_sessions.values.agents import AgentSession


def loaded(sender: type, session: AgentSession) -> None:
    _tell(signals.session_loaded, sender, session)


def load_failed(sender: type, session_id: Any, error: Exception) -> None:
    _tell_error(signals.session_load_failed, sender, session_id, error)


def action_executed(sender: type, before: AgentSession, after: AgentSession, action: str) -> None:
    """For a session the action made, of the one it was made of, which is as it was."""
    after = after if after.session_id == before.session_id else before
    signals.session_action_executed.send_robust(
        sender,
        session_id=before.session_id,
        action=action,
        before_version=before.version,
        after_version=after.version,
        before_status=before.status,
        after_status=after.status,
    )


def saved(sender: type, session: AgentSession, using: str) -> None:
    """Once the transaction that saved it has committed: now, unless the caller has one open."""
    tell = partial(_tell, signals.session_saved, sender, session)
    after_commit(connections[using], tell, robust=True)


def save_failed(sender: type, session_id: str, error: Exception) -> None:
    _tell_error(signals.session_save_failed, sender, session_id, error)


def _tell(signal: Signal, sender: type, session: AgentSession) -> None:
    signal.send_robust(sender, session_id=session.session_id, version=session.version, status=session.status)


def _tell_error(signal: Signal, sender: type, session_id: Any, error: Exception) -> None:
    signal.send_robust(sender, session_id=session_id, error=str(error), error_type=type(error).__name__)
