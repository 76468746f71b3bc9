"""ADK's artifacts on our sessions, as its own service in memory has them; large ones are attachments."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from google.adk.artifacts import InMemoryArtifactService, artifact_util
from google.adk.artifacts.artifact_util import get_artifact_uri
from google.adk.errors.input_validation_error import InputValidationError
from google.genai.types import Blob as InlineData
from google.genai.types import Part

from helix_sessions.exceptions import InvalidInput
from helix_sessions.integrations.google_adk import DjangoArtifactService
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

PLACE: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "s"}
PICTURE = Part(inline_data=InlineData(data=bytes(range(256)) * 4, mime_type="image/png"))


def test_it_behaves_as_adks_own_service(files: Any) -> None:
    def seen(service: Any) -> list[Any]:
        def call(name: str, **given: Any) -> Any:
            return async_to_sync(getattr(service, name))(**{**PLACE, **given})

        found = [call("load_artifact", filename="a.png"), call("list_versions", filename="a.png")]
        found += [call("save_artifact", filename="a.png", artifact=PICTURE)]
        found += [call("save_artifact", filename="a.png", artifact={"text": "second"})]
        found += [call("save_artifact", filename="user:b/c", artifact=PICTURE, custom_metadata={"k": 1})]
        found += [call("load_artifact", filename="a.png"), call("load_artifact", filename="a.png", version=0)]
        found += [call("load_artifact", filename="a.png", version=7), call("list_artifact_keys")]
        found += [call("load_artifact", filename="user:b/c", session_id="another")]
        found += [call("list_artifact_keys", session_id="another"), call("list_artifact_keys", user_id="bob")]
        found += [call("list_versions", filename="a.png")]
        versions = call("list_artifact_versions", filename="user:b/c")
        found += [(each.version, each.custom_metadata, each.mime_type) for each in versions]
        latest = call("get_artifact_version", filename="a.png")
        found += [(latest.version, latest.mime_type)]
        call("delete_artifact", filename="a.png")
        call("delete_artifact", filename="a.png")
        return [*found, call("list_artifact_keys"), call("load_artifact", filename="a.png")]

    assert seen(DjangoArtifactService()) == seen(InMemoryArtifactService())
    assert len(files()) == 1  # both names have the same content


def test_every_version_is_kept_however_many_save(store: SessionStore, run_threads: Any) -> None:
    def save(number: int) -> int:
        service = DjangoArtifactService()
        return async_to_sync(service.save_artifact)(**PLACE, filename="f", artifact=Part(text=str(number)))

    assert sorted(run_threads(4, save)) == [0, 1, 2, 3]
    with pytest.raises(InvalidInput):
        async_to_sync(DjangoArtifactService().load_artifact)(app_name="app", user_id="ada", filename="f")
    assert store.erase_user(user_id="ada").sessions == 1


def test_padded_ids_are_those_of_the_session() -> None:
    service = DjangoArtifactService()
    names: dict[str, Any] = {"app_name": "app", "user_id": "ada"}
    async_to_sync(service.save_artifact)(
        **names,
        session_id=" s ",
        filename="f",
        artifact=PICTURE,
        custom_metadata={"thing": int, "n": b"\xff"},
    )
    for padded in ("s", " s", "s  "):
        assert async_to_sync(service.load_artifact)(**names, session_id=padded, filename="f") == PICTURE
        assert async_to_sync(service.list_artifact_keys)(**names, session_id=padded) == ["f"]
        [version] = async_to_sync(service.list_artifact_versions)(**names, session_id=padded, filename="f")
        assert version.custom_metadata == {"thing": str(int), "n": "_w=="}
    with pytest.raises(InvalidInput):
        async_to_sync(service.save_artifact)(**names, session_id="  ", filename="f", artifact=PICTURE)


@pytest.mark.parametrize("name", ["app_name", "user_id", "session_id"])
@pytest.mark.parametrize("refused", ["", "..", "a/../b", "/a", "\\a", "C:a", "a\0b"])
def test_ids_that_adk_refuses_are_refused(name: str, refused: str) -> None:
    place: dict[str, Any] = {**PLACE, name: refused}

    def said(service: Any, call: str, **given: Any) -> str:
        with pytest.raises(InputValidationError) as error:
            async_to_sync(getattr(service, call))(**place, **given)
        return str(error.value)

    ours, theirs = DjangoArtifactService(), InMemoryArtifactService()
    given: dict[str, Any] = {"filename": "f", "artifact": PICTURE}
    for call in ("load_artifact", "delete_artifact", "list_versions", "get_artifact_version"):
        assert said(ours, call, filename="f") == said(theirs, call, filename="f")
    assert said(ours, "save_artifact", **given) == said(theirs, "save_artifact", **given)
    assert said(ours, "list_artifact_keys") == said(theirs, "list_artifact_keys")


def test_references_are_followed_within_the_users_own(store: SessionStore) -> None:
    def uri(filename: str, version: int = 0, **place: str) -> dict[str, Any]:
        given = {**PLACE, **place}
        return {"file_data": {"file_uri": get_artifact_uri(filename=filename, version=version, **given)}}

    def seen(service: Any) -> list[Any]:
        def save(filename: str, artifact: Any) -> Any:
            return async_to_sync(service.save_artifact)(**PLACE, filename=filename, artifact=artifact)

        def load(filename: str) -> Any:
            return async_to_sync(service.load_artifact)(**PLACE, filename=filename)

        save("a", {"text": "first"})
        save("a", {"text": "second"})
        save("user:all", {"text": "shared"})
        save("to-a", uri("a"))
        save("to-to-a", uri("to-a"))
        save("to-nothing", uri("nothing"))
        save("to-all", uri("user:all", session_id=""))
        save("round", uri("round"))
        save("gone", {"text": "x"})
        save("gone", Part(inline_data=InlineData(data=b"", mime_type="application/octet-stream")))
        found = [load(name) for name in ("to-a", "to-to-a", "to-nothing", "to-all", "gone")]
        for bad in (
            lambda: load("round"),
            lambda: save("b", uri("a", user_id="bob")),
            lambda: save("b", uri("a", app_name="another")),
            lambda: save("b", uri("a", session_id="another")),
            lambda: save("b", {"file_data": {"file_uri": "artifact://nowhere"}}),
            lambda: save("b", Part()),
        ):
            with pytest.raises(InputValidationError):
                bad()
        return found

    ours = seen(DjangoArtifactService())
    assert [part and part.text for part in ours] == ["first", "first", None, "shared", None]
    if hasattr(artifact_util, "resolve_artifact_reference"):  # earlier ones go round for ever
        assert ours == seen(InMemoryArtifactService())
