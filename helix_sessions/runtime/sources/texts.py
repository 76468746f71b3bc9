"""Sources whose value is a text, or a document that is shown as one."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from helix_sessions.types import JSON, UNAVAILABLE, SessionState, Unavailable


class TextSource(ABC):
    """A source that tells its value as it is. An empty text, or null, says nothing."""

    def __init__(self, key: str) -> None:
        self.key = key

    @abstractmethod
    def observe(self, session: SessionState) -> JSON | Unavailable: ...

    def baseline(self, value: JSON) -> str:
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)

    def update(self, old: JSON, new: JSON) -> str:
        text = self.baseline(new)
        if not text:
            return self.removed(old)
        if not self.baseline(old):
            return text
        return f"What you were told as {self.key!r} is replaced by this:\n\n{text}"

    def removed(self, old: JSON) -> str:
        return f"What you were told as {self.key!r} no longer applies." if self.baseline(old) else ""


class FixedText(TextSource):
    """A text that is part of the program: `FixedText("rules", "Be brief.")`."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(key)
        self.text = text

    def observe(self, session: SessionState) -> str:
        return self.text


class SettingText(TextSource):
    """A Django setting: a text, a document, or a function of the session. A setting that is not there is
    not available."""

    def __init__(self, name: str, key: str | None = None) -> None:
        super().__init__(key or name)
        self.name = name

    def observe(self, session: SessionState) -> JSON | Unavailable:
        value = getattr(settings, self.name, UNAVAILABLE)
        return value(session) if callable(value) else value


class CalledText(TextSource):
    """What a function of the session returns, a text, a document or `UNAVAILABLE`. The function may be
    given by its dotted path."""

    def __init__(self, key: str, function: str | Callable[[SessionState], Any]) -> None:
        super().__init__(key)
        self.function = function

    def observe(self, session: SessionState) -> JSON | Unavailable:
        function = import_string(self.function) if isinstance(self.function, str) else self.function
        return function(session)
