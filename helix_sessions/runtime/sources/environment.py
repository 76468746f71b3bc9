"""Facts about the machine that an agent works on, from an allow-list."""

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.exceptions import InvalidInput
from helix_sessions.types import JSON, SessionState

_FACTS: Mapping[str, Callable[[], str]] = {
    "system": lambda: f"{platform.system()} {platform.release()}",
    "architecture": platform.machine,
    "python": lambda: ".".join(map(str, sys.version_info[:3])),
    "time_zone": timezone.get_current_timezone_name,
    "hostname": platform.node,
    "directory": os.getcwd,
}
_DEFAULT = ("system", "architecture", "time_zone")


class Environment:
    """Facts by name (`system`, `architecture`, `python`, `time_zone`, `hostname`, `directory`), and variables
    of the environment that are named one by one. A variable whose name looks like a secret's is refused, as
    `MASKED_KEYS` says. One that is not set is left out."""

    def __init__(
        self, facts: Sequence[str] = _DEFAULT, variables: Sequence[str] = (), *, key: str = "environment"
    ) -> None:
        self.facts = (facts,) if isinstance(facts, str) else tuple(facts)
        self.variables = (variables,) if isinstance(variables, str) else tuple(variables)
        self.key = key
        unknown = [name for name in self.facts if name not in _FACTS]
        if unknown:
            raise InvalidInput(f"There is no fact {unknown[0]!r:.80}; there are {', '.join(_FACTS)}.")
        for name in self.variables:
            if any(fnmatchcase(name.lower(), pattern.lower()) for pattern in conf.MASKED_KEYS):
                raise InvalidInput(f"The variable {name!r:.80} may be a secret, and is not shown to a model.")

    def observe(self, session: SessionState) -> JSON:
        facts = {name: _FACTS[name]() for name in self.facts}
        return facts | {name: os.environ[name] for name in self.variables if name in os.environ}

    def baseline(self, value: JSON) -> str:
        if not value:
            return ""
        return "Environment:\n" + "\n".join(f"- {name}: {fact}" for name, fact in value.items())

    def update(self, old: JSON, new: JSON) -> str:
        """Only what changed."""
        lines = [f"- {name}: {fact}" for name, fact in new.items() if old.get(name) != fact]
        lines += [f"- {name}: no longer known" for name in old if name not in new]
        return "The environment has changed:\n" + "\n".join(lines)

    def removed(self, old: JSON) -> str:
        return "You are no longer told about the environment." if old else ""
