"""The artifacts of Google's ADK: `Runner(..., artifact_service=DjangoArtifactService())`.

Each session, and each user, has a session of its own for artifacts, with a note for each version. With
`BLOB_STORAGE` the content of large ones is an attachment.
"""

from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.google_adk_values import to_json
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON

with needed_from("google-adk"):
    from google.adk.artifacts import artifact_util
    from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService
    from google.adk.errors.input_validation_error import InputValidationError
    from google.genai.types import Blob, Part

AGENT_TYPE = "google_adk_artifacts"
_USER = "user:"
"""The beginning of the names of artifacts that all sessions of a user share."""
_REFERENCES = 5
"""So many references are followed, one to the next, as ADK does."""
_REMOVED = Part(inline_data=Blob(mime_type="application/octet-stream", data=b""))
"""What ADK saves when it rewinds to where an artifact was not there."""


class InvalidArtifact(InvalidInput, InputValidationError):
    """What is no artifact, or leads to none."""

    code = "invalid_artifact"


class DjangoArtifactService(BaseArtifactService):
    """ADK's artifacts, by app, user, session and name. `fields` are those of `create_session`."""

    def __init__(self, *, store: SessionStore | None = None, **fields: Any) -> None:
        self._store = SessionStore() if store is None else store
        self._fields = fields

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Keep a version; the first one is 0. It may refer to another artifact of the same user, and of the
        same session unless all share it."""
        part = Part.model_validate(artifact) if isinstance(artifact, dict) else artifact
        if artifact_util.is_artifact_ref(part):
            _target(part, app_name, user_id, session_id)
        place = (app_name, user_id, _scope(filename, session_id))
        return await sync_to_async(self._save)(place, filename, part, to_json(custom_metadata or {}))

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> Part | None:
        """A version, or the latest; `None` if there is none. Of one that refers to another, the other."""
        for _ in range(_REFERENCES + 1):
            key = _key(app_name, user_id, _scope(filename, session_id))
            found = await sync_to_async(self._load)(key, filename, version)
            part = None if found is None else Part.model_validate(found)
            if part is None or part == _REMOVED:
                return None
            if not artifact_util.is_artifact_ref(part):
                return part
            filename, session_id, version = _target(part, app_name, user_id, session_id)
        raise InvalidArtifact(f"More than {_REFERENCES} references lead from one artifact to the next.")

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """The names in a session, and those that the user's sessions share."""
        names: set[str] = set()
        for scope in {""} if session_id is None else {"", _session_id(session_id)}:
            infos = await sync_to_async(self._infos)(_key(app_name, user_id, scope))
            names.update(info["filename"] for info in infos)
        return sorted(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Remove all versions. What they held is an attachment until the session of artifacts is deleted."""
        await sync_to_async(self._delete)(_key(app_name, user_id, _scope(filename, session_id)), filename)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of the versions."""
        key = _key(app_name, user_id, _scope(filename, session_id))
        return [info["version"] for info in await sync_to_async(self._infos)(key, filename)]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """The versions, without their content."""
        key = _key(app_name, user_id, _scope(filename, session_id))
        return [_described(key, info) for info in await sync_to_async(self._infos)(key, filename)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """What is known of a version, or of the latest."""
        place = {"app_name": app_name, "user_id": user_id, "filename": filename, "session_id": session_id}
        found = await self.list_artifact_versions(**place)  # type: ignore[arg-type]
        chosen = found[-1:] if version is None else [each for each in found if each.version == version]
        return chosen[0] if chosen else None

    def _save(self, place: tuple[str, str, str], filename: str, part: Part, metadata: dict[str, Any]) -> int:
        key = _key(*place)
        written = to_json(part, exclude_none=True)
        if not written:
            raise InvalidArtifact("An artifact has a text, inline data or file data.")
        while True:
            try:
                head = self._store.get_session_head(key)
                version = len(self._infos(key, filename))
                info = {
                    "filename": filename,
                    "version": version,
                    "custom_metadata": metadata,
                    "mime_type": _media_type(part),
                    "create_time": timezone.now().timestamp(),
                }
                notes: dict[str, JSON] = {
                    _note("info", filename, version): info,
                    _note("part", filename, version): written,
                }
                self._store.put_notes(key, notes, expected_version=head.version)
                return version
            except SessionNotFound:
                self._create(key, place)
            except StaleState:
                continue  # another version was saved meanwhile

    def _create(self, key: str, place: tuple[str, str, str]) -> None:
        names = dict(zip(("app_name", "user_id", "adk_session_id"), place, strict=True))
        fields = {"user_id": place[1], **self._fields, "metadata": names}
        try:
            self._store.create_session(key, agent_type=AGENT_TYPE, mode="persistent", **fields)
        except SessionExists:
            self._store.get_session_head(key)  # raises if it is another owner's

    def _infos(self, key: str, filename: str | None = None) -> list[dict[str, Any]]:
        prefix = "info/" if filename is None else _note("info", filename)
        try:
            return [note.document for note in self._store.get_notes(key, prefix=prefix)]
        except SessionNotFound:
            return []

    def _load(self, key: str, filename: str, version: int | None) -> Any:
        number = len(self._infos(key, filename)) - 1 if version is None else version
        if number < 0:
            return None
        try:
            found = self._store.get_notes(key, keys=[_note("part", filename, number)])
        except SessionNotFound:
            return None
        return found[0].document if found else None

    def _delete(self, key: str, filename: str) -> None:
        count = len(self._infos(key, filename))
        notes = [_note(kind, filename, number) for kind in ("info", "part") for number in range(count)]
        if notes:
            self._store.remove_notes(key, notes)


def _scope(filename: str, session_id: str | None) -> str:
    """The session of an artifact; empty if all sessions of the user share it."""
    if filename.startswith(_USER):
        return ""
    if session_id is None:
        raise InvalidArtifact("An artifact whose name does not begin with 'user:' needs a session id.")
    return _session_id(session_id)


def _session_id(session_id: str) -> str:
    """A session's id as the sessions have it, without spaces around it."""
    return _checked(session_id.strip(), "session_id")


def _checked(value: str, name: str) -> str:
    """An id, unless ADK's own services refuse it: one that is empty or could leave a directory."""
    try:
        artifact_util.validate_path_segment(value, name)
    except InputValidationError as error:
        raise InvalidArtifact(str(error)) from None
    return value


def _target(part: Part, app: str, user: str, session_id: str | None) -> tuple[str, str | None, int]:
    """Name, session and version of what an artifact refers to, if it may."""
    assert part.file_data is not None  # noqa: S101 - it is a reference
    parsed = artifact_util.parse_artifact_uri(part.file_data.file_uri or "")
    if parsed is None:
        raise InvalidArtifact("An artifact refers to what is no address of an artifact.")
    try:
        artifact_util.validate_artifact_reference_scope(
            app_name=app, user_id=user, session_id=session_id and session_id.strip(), parsed_uri=parsed
        )
    except InputValidationError as error:
        raise InvalidArtifact(str(error)) from None
    return parsed.filename, parsed.session_id, parsed.version


def _key(app: str, user: str, scope: str) -> str:
    names = (_checked(app, "app_name"), _checked(user, "user_id"), scope)
    return f"adk-artifacts/{documents.digest(*names)}"


def _note(kind: str, filename: str, version: int | None = None) -> str:
    name = f"{kind}/{documents.digest(filename)}/"
    return name if version is None else f"{name}{version:09d}"


def _media_type(part: Part) -> str | None:
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.file_data is not None:
        return None if artifact_util.is_artifact_ref(part) else part.file_data.mime_type
    return "text/plain" if part.text is not None else None


def _described(key: str, info: dict[str, Any]) -> ArtifactVersion:
    uri = f"helix-sessions://{key}/{documents.digest(info['filename'])}/{info['version']}"
    known = {name: value for name, value in info.items() if name != "filename"}
    return ArtifactVersion(canonical_uri=uri, **known)
