"""`POST sessions/{id}/actions/`: every action, by name."""

import json

import pytest

from helix_sessions import runtime as runtime_package
from helix_sessions.api.serializers.actions import INPUTS
from helix_sessions.runtime import (
    Budget,
    SessionRuntime,
    SuspendSession,
)
from tests.api.golden import generated, parsed
from tests.rows import each

pytestmark = pytest.mark.django_db

PATH = "/api/sessions/s/actions/"


class Agent:
    """What the settings of these tests name."""

    def run_turn(self, turn):
        said = turn.context.messages[-1]["content"]
        if said == "fail":
            raise RuntimeError("boom")
        return f"re {said}"


@pytest.fixture
def agents(settings):
    settings.HELIX_SESSIONS = {"AGENTS": {"test": "tests.api.test_actions.Agent"}}


def loaded():
    return SessionRuntime().get_session("s")


def is_problem(response, status, code):
    assert (response.status_code, response.json()["code"]) == (status, code), response.content


def test_there_is_one_for_each_action():
    offered = {name: getattr(runtime_package, name) for name in runtime_package.__all__}
    made = {name for name, kind in offered.items() if hasattr(kind, "execute_on")}
    assert set(INPUTS) == made - {"Action", "StagedAction"}
    assert len(INPUTS) == 10


def test_the_schema_has_them_as_a_union():
    schemas = parsed(generated())["components"]["schemas"]
    union = schemas["SessionAction"]
    mapping = union["discriminator"]["mapping"]
    assert union["discriminator"]["propertyName"] == "action"
    assert set(mapping) == set(INPUTS)
    assert [each["$ref"] for each in union["oneOf"]] == list(mapping.values())
    for name, ref in mapping.items():
        shape = schemas[ref.rpartition("/")[2]]
        assert shape["properties"]["action"]["const"] == name
        assert "action" in shape["required"]
        assert shape["description"]


@each(
    ("sent", "look", "expected"),
    [
        ({"action": "SuspendSession"}, lambda s: s.status, "suspended"),
        ({"action": "ResumeSession"}, lambda s: s.status, "active"),
        ({"action": "ClearSession"}, lambda s: len(s.state.messages), 0),
        ({"action": "ChangeModel", "model": "large"}, lambda s: s.state.model, "large"),
        ({"action": "ChangeModel", "model": None}, lambda s: s.state.model, None),
        (
            {"action": "ChangeBudget", "budget": {"max_steps": 3, "max_cost": 0.5}},
            lambda s: s.state.budget,
            Budget(max_steps=3, max_cost=0.5),
        ),
        ({"action": "ChangeBudget", "budget": None}, lambda s: s.state.budget, None),
        ({"action": "ChangeSystemPrompt", "text": ""}, lambda s: s.state.system_prompt, ""),
        ({"action": "WriteMetadata", "key": "a", "value": None}, lambda s: s.state.metadata, {"a": None}),
        (
            {"action": "UpdateTask", "tasks": [{"content": "wash", "status": "pending"}]},
            lambda s: s.state.metadata,
            {"tasks": [{"content": "wash", "status": "pending"}]},
        ),
    ],
    ids=lambda value: value["action"] if isinstance(value, dict) and "action" in value else "",
)
def test_an_action(api, session, sent, look, expected):
    response = api.post(PATH, sent)
    assert response.status_code == 200, response.content
    assert look(loaded()) == expected
    assert loaded().version == 2
    assert response["ETag"] == '"2"'
    body = response.json()
    assert set(body) == {"info", "definition", "state"}
    assert (body["info"]["session_id"], body["info"]["version"]) == ("s", 2)
    assert body["state"]["message_count"] == 0
    assert "messages" not in body["state"]


def test_a_fork_is_a_new_session(api, session, store, user):
    store.append_messages("s", [{"role": "user", "content": "hello"}])
    response = api.post(PATH, {"action": "ForkSession", "new_id": "f"})
    assert (response.status_code, response["ETag"]) == (201, '"1"')
    assert response["Location"].endswith("/api/sessions/f/")
    assert response.json()["info"]["parent_id"] == "s"
    state = store.load_state("f")
    assert (state.owner_id, state.message_count, store.load_state("s").version) == (user.pk, 1, 2)
    is_problem(api.post(PATH, {"action": "ForkSession", "new_id": "f"}), 409, "session_exists")
    assert api.post(PATH, {"action": "ForkSession"}).status_code == 201


class TestSendMessage:
    def test_the_agent_of_the_settings_answers(self, api, session, agents):
        response = api.post(PATH, {"action": "SendMessage", "message": "hello"})
        assert (response.status_code, response["ETag"]) == (200, '"3"')
        assert response.json()["state"]["execution"]["status"] == "completed"
        assert [message["content"] for message in loaded().state.messages] == ["hello", "re hello"]

    def test_one_that_fails(self, api, session, agents):
        message = {"role": "user", "content": "fail"}
        body = api.post(PATH, {"action": "SendMessage", "message": message}).json()
        assert body["state"]["execution"]["status"] == "failed"
        assert body["info"]["status"] == "active"

    def test_without_an_agent_nothing_is_stored(self, api, session):
        is_problem(api.post(PATH, {"action": "SendMessage", "message": "hello"}), 501, "not_configured")
        assert loaded().version == 1

    def test_it_takes_no_idempotency_key(self, api, session, agents):
        sent = {"action": "SendMessage", "message": "hello"}
        response = api.post(PATH, sent, headers={"Idempotency-Key": "k"})
        is_problem(response, 400, "invalid_input")
        assert loaded().version == 1

    def test_nobody_chooses_the_agent(self, api, session):
        sent = {"action": "SendMessage", "message": "hello", "agent": "os.system"}
        is_problem(api.post(PATH, sent), 400, "invalid_input")


@each(
    "sent",
    [
        None,
        [],
        "SuspendSession",
        {},
        {"action": None},
        {"action": "DropTable"},
        {"action": "Action"},
        {"action": ["SuspendSession"]},
        {"action": "SuspendSession", "why": 1},
        {"action": "ChangeModel"},
        {"action": "ChangeBudget", "budget": {"max_steps": -1}},
        {"action": "ChangeBudget", "budget": {"max_nose": 1}},
        {"action": "ChangeBudget", "budget": {"deadline": "2030-01-01T00:00:00"}},
        {"action": "ChangeBudget", "budget": 1},
        {"action": "ChangeSystemPrompt", "text": None},
        {"action": "WriteMetadata", "key": 1, "value": 1},
        {"action": "UpdateTask", "tasks": [{"content": "a", "status": "in_progress"}] * 2},
        {"action": "UpdateTask", "tasks": [{"content": "a", "status": "pending"}] * 21},
        {"action": "UpdateTask", "tasks": None},
        {"action": "SendMessage", "message": {"role": "nobody"}},
        {"action": "ForkSession", "new_id": ""},
        {"action": "ForkSession", "new_id": "x" * 300},
    ],
    ids=lambda sent: json.dumps(sent)[:60],
)
def test_what_is_refused(api, session, agents, sent):
    response = api.generic("POST", PATH, json.dumps(sent), content_type="application/json")
    is_problem(response, 400, "invalid_input")
    assert loaded().version == 1


def test_metadata_takes_no_null_characters(api, session):
    sent = {"action": "WriteMetadata", "key": "a", "value": "\x00"}
    is_problem(api.post(PATH, sent), 422, "invalid_document")


class TestVersions:
    def test_if_match(self, api, session):
        response = api.post(PATH, {"action": "SuspendSession"}, headers={"If-Match": '"7"'})
        is_problem(response, 412, "stale_state")
        assert (response.json()["expected_version"], response.json()["current_version"]) == (7, 1)
        assert loaded().version == 1
        response = api.post(PATH, {"action": "SuspendSession"}, headers={"If-Match": '"1"'})
        assert response.status_code == 200

    def test_a_race_is_a_conflict(self, api, session, settings, store):
        class Interfering:
            def run_turn(self, turn):
                store.patch_metadata("s", {"a": 1})
                return "hi"

        settings.HELIX_SESSIONS = {"AGENTS": {"*": Interfering()}}
        response = api.post(PATH, {"action": "SendMessage", "message": "hello"})
        is_problem(response, 409, "session_conflict")
        assert (response.json()["expected_version"], response.json()["current_version"]) == (2, 3)
        assert [message["content"] for message in loaded().state.messages] == ["hello"]

    def test_a_key_repeats_the_answer(self, api, session):
        sent, headers = {"action": "WriteMetadata", "key": "a", "value": 1}, {"Idempotency-Key": "k"}
        first = api.post(PATH, sent, headers=headers)
        again = api.post(PATH, sent, headers=headers)
        assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")
        assert loaded().version == 2


def test_forks_count_as_creations(api, session, settings):
    settings.HELIX_SESSIONS = {"API_THROTTLE_RATES": {"create": "1/min"}}
    assert api.post(PATH, {"action": "ForkSession"}).status_code == 201
    assert api.post(PATH, {"action": "ForkSession"}).status_code == 429
    assert api.post(PATH, {"action": "SuspendSession"}).status_code == 200


def test_python_and_http_say_the_same(api, session):
    by_http = api.post(PATH, {"action": "SuspendSession"}).json()["info"]
    assert by_http["status"] == SessionRuntime().execute("s", SuspendSession()).status
