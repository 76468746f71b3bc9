"""How many statements a request costs, and what it never reads."""

import pytest
from rest_framework.test import APIClient

from project.tokens import create_token
from tests.api.routes import COMMIT
from tests.api.statements import captured_statements
from tests.rows import each

TOKEN = 1
"""A token is read with its user in one statement."""

DRIVER = 1
"""The permissions of the user, the groups' included, are read in another one."""


def statements(call):
    with captured_statements() as found:
        response = call()
    assert response.status_code < 300, response.content
    return found


@pytest.mark.django_db
class TestReads:
    def test_a_session(self, api, session):
        api.get("/api/sessions/s/")
        assert len(statements(lambda: api.get("/api/sessions/s/"))) <= 2

    def test_a_session_that_changed(self, api, session):
        headers = {"If-None-Match": '"7"'}
        assert len(statements(lambda: api.get("/api/sessions/s/", headers=headers))) <= 2

    def test_a_page_of_messages(self, api, session, store):
        store.append_messages("s", [{"role": "user"}] * 60)
        assert len(statements(lambda: api.get("/api/sessions/s/messages/"))) == 1

    def test_a_page_of_events(self, api, session):
        assert len(statements(lambda: api.get("/api/sessions/s/events/"))) <= 3

    def test_a_list(self, api, user, store):
        for number in range(60):
            store.create_session(f"s{number}", agent_type="a", owner=user, custom_state={"a": 1})
        api.get("/api/sessions/")
        found = statements(lambda: api.get("/api/sessions/"))
        assert len(found) == 1
        for column in ("output", "pending_client_tool_calls", "workspace_ref", "document"):
            assert column not in found[0]

    @each("name", ["status", "counters", "messages/count"])
    def test_numbers(self, name, api, session):
        [sql] = statements(lambda: api.get(f"/api/sessions/s/{name}/"))
        for column in ("output", "tags", "metadata", "document", "content"):
            assert column not in sql

    @each("name", ["run", "run/wake", "run/interrupt"])
    def test_telling_the_runner(self, name, api, session):
        found = statements(lambda: api.post(f"/api/sessions/s/{name}/", {}))
        assert not any("document" in sql for sql in found)


@pytest.mark.django_db(transaction=True)
class TestWholeRequests:
    """With a token, so that authentication is counted too."""

    @pytest.fixture
    def client(self, user, session):
        client = APIClient(headers={"Authorization": f"Bearer {create_token(user, 'test')}"})
        client.default_format = "json"
        client.get("/api/sessions/s/")
        return client

    def of_the_store(self, call):
        with captured_statements() as captured:
            call()
        return len(captured)

    def test_what_a_participant_may_takes_no_permissions(self, client, store):
        for address in ("/api/sessions/s/", "/api/sessions/s/messages/"):
            assert len(statements(lambda address=address: client.get(address))) == 1 + TOKEN, address

    def test_a_list_asks_what_the_user_may_see(self, client):
        assert len(statements(lambda: client.get("/api/sessions/"))) == 1 + TOKEN + DRIVER

    def test_a_commit_is_the_store_and_authentication(self, client, store):
        def commit():
            state = store.load_state("s")
            return lambda: store.save_state_and_promote_staging(
                "s", state, COMMIT["append_messages"], expected_version=state.version
            )

        for _ in range(2):  # a connection that remembers rows asks once whether a pooler is between
            commit()()
        alone = self.of_the_store(commit())
        headers = {"If-Match": f'"{store.load_state("s").version}"'}
        found = statements(lambda: client.post("/api/sessions/s/commit/", COMMIT, headers=headers))
        assert len(found) == alone + TOKEN + DRIVER

    def test_an_append_is_the_store_and_authentication(self, client, store):
        messages = [{"role": "user", "content": "hi"}]
        for _ in range(2):
            store.append_messages("s", messages)
        alone = self.of_the_store(lambda: store.append_messages("s", messages))
        body = {"messages": messages}
        found = statements(lambda: client.post("/api/sessions/s/messages/", body))
        assert len(found) == alone + TOKEN + DRIVER

    def test_a_turn_is_the_store_and_authentication(self, client, store):
        """A turn is begun, suspended, answered and resumed: by the store, then over HTTP."""

        def turn(number):
            call = {"tool_call_id": f"c{number}", "tool_name": "t", "arguments": {}}
            run, again = f"r{number}", f"again{number}"
            return {
                "turns": (store.begin_turn, {"message": "hi", "run_id": run}),
                "suspend": (
                    lambda s, state, **more: store.suspend(s, state=store.load_state(s), **more),
                    {"kind": "client_tool", "state": {}, "run_id": run, "pending_calls": [call]},
                ),
                "tool-results": (store.submit_tool_result, {"tool_call_id": f"c{number}", "result": 1}),
                "resume": (store.resume, {"run_id": again}),
                "runs": (
                    lambda s, run_id: store.update_run_status(s, run_id, "completed"),
                    {"run_id": again},
                ),
            }

        counted = []
        for number in range(2):
            counted.append(
                {
                    name: self.of_the_store(lambda call=call, body=body: call("s", **body))
                    for name, (call, body) in turn(number).items()
                }
            )
        alone = counted[1]
        for name, (call, body) in turn(2).items():
            if name == "runs":
                call("s", **body)
                continue
            headers, lease = {}, 0
            if name == "resume":  # whoever does holds the lease, which is looked at first
                headers, lease = {"Helix-Fence": str(store.acquire_lease("s", "driver", 60).fence)}, 1
            found = statements(
                lambda name=name, body=body, headers=headers: client.post(
                    f"/api/sessions/s/{name}/", body, headers=headers
                )
            )
            load_state = 1 if name == "suspend" else 0
            assert len(found) == alone[name] - load_state + lease + TOKEN + DRIVER, name
