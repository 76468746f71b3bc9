"""Skills: instructions for tasks, of which the model knows the names, and reads what it needs."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.runtime.sources.confined import read_inside
from helix_sessions.runtime.sources.front_matter import front_matter
from helix_sessions.types import JSON, UNAVAILABLE, SessionState, Unavailable

_log = logging.getLogger("helix_sessions.context")

FILE = "SKILL.md"
_LONGEST_NAME, _LONGEST_DESCRIPTION = 64, 1_024


class Skills:
    """The skills in the directories below `root`, each with a `SKILL.md` that begins with its `name` and
    `description`. The baseline lists both; `read_skill` is the tool with which the model reads the rest.

        skills = Skills("skills")
        tools = {"read_skill": skills.read_skill}
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        key: str = "skills",
        tool_name: str = "read_skill",
        max_skills: int = 100,
        max_bytes: int = 64 * 1024,
    ) -> None:
        self.root = Path(root)
        self.key = key
        self.tool_name = tool_name
        self.max_skills = max_skills
        self.max_bytes = max_bytes

    def observe(self, session: SessionState) -> JSON | Unavailable:
        try:
            return {name: description for name, (description, _) in self._found().items()}
        except OSError as error:
            _log.warning("The skills of the context source %r cannot be read: %s", self.key, error)
            return UNAVAILABLE

    def read_skill(self, arguments: Any, turn: Any = None) -> str:
        """The tool: `{"name": …}` gives the instructions of a skill, `{"name": …, "file": …}` another text
        file of its directory."""
        given = arguments if isinstance(arguments, Mapping) else {}
        found = self._found()
        name, file = given.get("name"), given.get("file", FILE)
        if not isinstance(name, str) or name not in found:
            raise InvalidInput(f"There is no skill {name!r:.80}. There are: {', '.join(found) or 'none'}.")
        if (
            not isinstance(file, str)
            or not file
            or PurePath(file).is_absolute()
            or ".." in PurePath(file).parts
        ):
            raise InvalidInput("A file of a skill is named by its path inside the skill's directory.")
        directory = found[name][1]
        text = read_inside(directory, directory / file, self.max_bytes)
        if text is None:
            raise InvalidInput(f"The skill {name!r} has no file {file!r:.200}.")
        return front_matter(text)[1] if file == FILE else text

    @property
    def tool_schema(self) -> dict[str, JSON]:
        """The parameters of `read_skill`, as a JSON Schema."""
        properties = {
            "name": {"type": "string", "description": "The name of the skill."},
            "file": {"type": "string", "description": "Another file of the skill, by its path."},
        }
        return {"type": "object", "properties": properties, "required": ["name"]}

    def baseline(self, value: JSON) -> str:
        if not value:
            return ""
        listed = "\n".join(f"- {name}: {description}" for name, description in value.items())
        return f"Skills. Read one with {self.tool_name} before a task that it is for:\n{listed}"

    def update(self, old: JSON, new: JSON) -> str:
        if not new:
            return self.removed(old)
        return f"The skills have changed. {self.baseline(new)}"

    def removed(self, old: JSON) -> str:
        return "There are no skills any more." if old else ""

    def _found(self) -> dict[str, tuple[str, Path]]:
        """The description and the directory of each skill, by name, in the order of the directories."""
        root = self.root.resolve(strict=True)
        found: dict[str, tuple[str, Path]] = {}
        for directory in sorted(path.resolve() for path in root.iterdir() if path.is_dir()):
            if not directory.is_relative_to(root):
                continue
            text = read_inside(directory, directory / FILE, self.max_bytes)
            if text is None or len(found) >= self.max_skills:
                continue
            fields, _ = front_matter(text)
            name = " ".join(fields.get("name", directory.name).split())
            if not name or len(name) > _LONGEST_NAME or name in found:
                _log.warning("The skill in %s has no name of its own, and is left out.", directory)
                continue
            description = " ".join(fields.get("description", "").split())
            found[name] = (description[:_LONGEST_DESCRIPTION], directory)
        return found
