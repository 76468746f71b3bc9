"""A Python client generated from the schema goes from a session to a step, a conflict, a branch, an end."""

import importlib
import subprocess
import sys

import pytest

from project.tokens import create_token
from tests.api.golden import GOLDEN


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The client's package, importable."""
    directory = tmp_path_factory.mktemp("client")
    (directory / "config.yaml").write_text("post_hooks: []\n")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(GOLDEN)]
    command += ["--output-path", str(directory / "helix_client"), "--meta", "none"]
    command += ["--config", str(directory / "config.yaml"), "--fail-on-warning"]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    sys.path.insert(0, str(directory))
    yield importlib.import_module("helix_client")
    sys.path.remove(str(directory))


@pytest.mark.django_db(transaction=True)
def test_a_session_from_beginning_to_end(generated, live_server, user, store):
    def call(name, *args, **kwargs):
        module = importlib.import_module(f"helix_client.api.{name}")
        return module.sync_detailed(*args, client=client, **kwargs)

    models = importlib.import_module("helix_client.models")
    client = generated.AuthenticatedClient(live_server.url, token=create_token(user, "generated"))

    created = call(
        "sessions.create_session",
        body=models.NewSessionInput(agent_type="support", session_id="a/b c", tags=["x"]),
    )
    assert (created.status_code, created.parsed.version) == (201, 1)
    session_id = "a~1b c"  # a slash in a path

    message = models.CommitInputAppendMessagesItem.from_dict({"role": "user", "content": "Hello"})
    step = models.CommitInput(
        state=models.StateInput(step_count=1, tags=["x"]),
        append_messages=[message],
        checkpoint_meta=models.CheckpointMetaInput(checkpoint_id="step-1"),
    )
    committed = call("commit.commit_step", session_id, body=step, if_match=created.headers["ETag"])
    assert (committed.status_code, committed.parsed.version) == (200, 2)
    assert call("commit.commit_step", session_id, body=step).parsed.replayed is True

    page = call("messages.get_messages", session_id).parsed
    assert [message.to_dict() for message in page.items] == [{"role": "user", "content": "Hello"}]

    status = models.StatusInput(expected_statuses=["active"], new_status=models.SessionStatus.PAUSED)
    stale = call("status.compare_and_set_status", session_id, body=status, if_match='"1"')
    assert stale.status_code == 412
    assert (stale.parsed.code, stale.parsed.current_version) == ("stale_state", 2)

    branch = call(
        "sessions.clone_session",
        session_id,
        body=models.CloneInput(new_id="branch", checkpoint_id="step-1"),
        idempotency_key="branch-once",
    )
    assert (branch.status_code, branch.parsed.forked_from) == (201, ["a/b c", "step-1"])

    listed = call("sessions.list_sessions", tag="x").parsed
    assert [item.session_id for item in listed.items] == ["branch", "a/b c"]

    for name in (session_id, "branch"):
        assert call("sessions.delete_session", name).status_code == 204
    assert call("sessions.get_session", session_id).parsed.code == "session_not_found"
    assert store.list_sessions().items == []
