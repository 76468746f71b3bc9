"""Gives imported sessions new ids, in every place of a record that names a session of the tree."""

from collections.abc import Mapping
from typing import Any

from django.db import models

from helix_sessions.content import documents
from helix_sessions.models import Checkpoint, Event, Session
from helix_sessions.models.fields import DocumentField
from helix_sessions.store.engine.session_columns import NAMING_SESSIONS
from helix_sessions.store.engine.tables import table
from helix_sessions.types import UNSET

_EVENTS_THAT_NAME_SESSIONS = frozenset(
    ("session_started", "subagent_spawned", "subagent_updated", "subagent_result")
)


class NewIds:
    """Old ids to new ones, and the owner that the sessions get unless that is `UNSET`."""

    def __init__(self, ids: Mapping[str, str], owner: Any = UNSET) -> None:
        self.ids = ids
        self.owner = owner

    def __bool__(self) -> bool:
        return bool(self.ids) or self.owner is not UNSET

    def row(self, model: type[models.Model], columns: dict[str, Any]) -> dict[str, Any]:
        """The columns of a row with the ids of sessions and owners replaced. What people and models wrote is
        not changed."""
        changed = {
            name: self.ids.get(value, value)
            for name, value in columns.items()
            if name.endswith("session_id") and not isinstance(table(model).fields[name], DocumentField)
        }
        if model is Session:
            if self.owner is not UNSET:
                changed["owner_id"] = self.owner
            changed.update({name: self._text(columns[name]) for name in NAMING_SESSIONS})
        elif model is Checkpoint:
            changed["frame"] = self._frame(columns["frame"])
        elif model is Event:
            changed["data"] = self.event_data(columns["type"], columns["data"])
        return {**columns, **changed}

    def event_data(self, kind: str, text: str | None) -> str | None:
        """The data of an event of this type."""
        return self._text(text) if kind in _EVENTS_THAT_NAME_SESSIONS else text

    def _frame(self, text: str) -> str:
        frame = documents.load(text)
        for name in ("parent_session_id", "root_session_id", "forked_from", *NAMING_SESSIONS):
            if name in frame:
                frame[name] = self._value(frame[name])
        if self.owner is not UNSET:
            frame.pop("owner_id", None)
            if self.owner is not None:
                frame["owner_id"] = self.owner if isinstance(self.owner, int) else str(self.owner)
        return documents.write(frame)

    def _text(self, text: str | None) -> str | None:
        return None if text is None else documents.write(self._value(documents.load(text)))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.ids.get(value, value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        return value
