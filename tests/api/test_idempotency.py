"""`Idempotency-Key`: once, whatever is repeated."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from helix_sessions.api.urls import ROUTES
from helix_sessions.exceptions import IdempotencyInProgress
from helix_sessions.models import IdempotentAnswer
from helix_sessions.store import SessionStore
from helix_sessions.store.keyed import idempotency
from helix_sessions.types import Answer
from tests.api.filled import headers_of, prepare
from tests.api.routes import BODIES, FRONT_ENDS, address, every_method
from tests.api.test_problems import is_problem
from tests.api.test_who_may import OPERATED
from tests.parallel import Worker
from tests.rows import each

KEY = {"Idempotency-Key": "once"}
POSTS = [name for method, name in every_method() if method == "post" and name not in (*OPERATED, *FRONT_ENDS)]


def test_every_post_is_idempotent():
    for _, view, name in ROUTES:
        if name not in FRONT_ENDS and hasattr(view, "post") and "post" in view.http_method_names:
            assert getattr(view.post, "is_idempotent", False), name


@pytest.mark.django_db
@each("name", POSTS)
def test_the_answer_is_given_again_and_nothing_done(name, api, filled, store):
    prepare(store, filled, name)
    body = {"run_id": "r2"} if name == "runs" else BODIES.get(("post", name))
    path = address(name, filled)
    headers = {**KEY, **headers_of(store, filled, "post", name)}
    first = api.post(path, body, headers=headers)
    state, count = store.load_state(filled), len(store.list_sessions().items)
    again = api.post(path, body, headers=headers)
    assert first.status_code < 300
    assert again.status_code == first.status_code
    assert again.content == first.content
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    for header in ("ETag", "Location", "Content-Type"):
        assert again.get(header) == first.get(header)
    assert (store.load_state(filled), len(store.list_sessions().items)) == (state, count)


@pytest.mark.django_db
class TestKeys:
    path = "/api/sessions/s/counters/step/"

    def test_refusals_are_answers(self, api, session, store):
        commit: dict[str, object] = {"state": {}}
        headers = {**KEY, "If-Match": '"7"'}
        first = api.post("/api/sessions/s/commit/", commit, headers=headers)
        is_problem(first, 412, "stale_state")
        for _ in range(6):
            store.increment_step_count("s")
        again = api.post("/api/sessions/s/commit/", commit, headers=headers)
        assert again.content == first.content
        assert store.load_state("s").version == 7

    def test_what_was_not_tried_is_no_answer(self, api, session):
        assert api.post("/api/sessions/s/messages/", {}, headers=KEY).status_code == 400
        body = {"messages": [{"role": "user"}]}
        assert api.post("/api/sessions/s/messages/", body, headers=KEY).status_code == 201

    @each("other", ["body", "address", "condition"])
    def test_another_request_under_the_key_is_422(self, other, api, session, store):
        path = "/api/sessions/s/messages/"
        body = {"messages": [{"role": "user"}]}
        assert api.post(path, body, headers=KEY).status_code == 201
        headers = dict(KEY)
        if other == "body":
            body = {"messages": [{"role": "system"}]}
        elif other == "address":
            path = "/api/sessions/other/messages/"
        else:
            headers["If-Match"] = '"2"'
        is_problem(api.post(path, body, headers=headers), 422, "idempotency_key_reused")
        assert store.get_message_count("s") == 1

    def test_a_key_belongs_to_one_user(self, api, client_of, stranger, session):
        body = {"session_id": "mine", "agent_type": "a"}
        assert api.post("/api/sessions/", body, headers=KEY).status_code == 201
        response = client_of(stranger).post("/api/sessions/", body, headers=KEY)
        is_problem(response, 409, "session_exists")

    def test_keys_expire(self, api, session, store):
        assert api.post(self.path, headers=KEY).json() == {"value": 1}
        IdempotentAnswer.objects.update(expires_at=timezone.now())
        assert api.post(self.path, headers=KEY).json() == {"value": 2}
        assert api.post(self.path, headers=KEY).json() == {"value": 2}
        [left] = IdempotentAnswer.objects.values_list("expires_at", flat=True)
        assert left - timezone.now() <= timedelta(days=1)

    def test_expired_ones_are_removed(self, api, session):
        api.post(self.path, headers=KEY)
        out = StringIO()
        call_command("prune_idempotency_keys", stdout=out)
        assert IdempotentAnswer.objects.count() == 1
        IdempotentAnswer.objects.update(expires_at=timezone.now())
        call_command("prune_idempotency_keys", stdout=out)
        assert IdempotentAnswer.objects.count() == 0
        assert "Removed 1" in out.getvalue()

    @each("key", ["", "x" * 256, "a\x07b"])
    def test_what_is_no_key(self, key, api, session):
        is_problem(api.post(self.path, headers={"Idempotency-Key": key}), 400, "invalid_input")

    def test_no_secrets_are_kept(self, api, session):
        headers = {**KEY, "Authorization": "Bearer very-secret", "Cookie": "sessionid=very-secret"}
        api.post(self.path, headers=headers)
        [row] = IdempotentAnswer.objects.values()
        assert "very-secret" not in str(row)

    def test_deleting_a_user_deletes_the_answers(self, api, session, user):
        api.post(self.path, headers=KEY)
        user.delete()
        assert IdempotentAnswer.objects.count() == 0

    def test_a_failure_frees_the_key(self, user, store):
        def fail() -> Answer:
            store.create_session("half", agent_type="a")
            raise LookupError

        with pytest.raises(LookupError):
            store.answer_once(user, "k", "d", fail)
        assert not store.session_exists("half")
        assert store.answer_once(user, "k", "d", lambda: Answer(status=200)).replayed is False


@pytest.mark.django_db(transaction=True)
class TestConcurrency:
    def test_one_of_many_does_the_work(self, session, client_of, user, store, run_threads):
        def post(index: int) -> tuple[int, bytes]:
            client = client_of(user)
            response = client.post("/api/sessions/s/counters/step/", headers=KEY)
            return response.status_code, response.content

        results = run_threads(8, post)
        assert set(results) == {(200, b'{"value":1}')}
        assert store.load_state("s").step_count == 1

    def test_meanwhile_a_second_request_is_told(self, session, user, store, monkeypatch, run_threads):
        """On SQLite there is one writer at a time, so the second one waits instead."""
        if connection.vendor == "sqlite":
            pytest.skip("writers wait for each other")
        monkeypatch.setattr(idempotency, "WAIT_SECONDS", 0.05)

        def first() -> Answer:
            [refused] = run_threads(
                1, lambda _: store.answer_once(user, "k", "d", lambda: Answer(status=500))
            )
            assert isinstance(refused, IdempotencyInProgress)
            return Answer(status=200, body="first")

        assert store.answer_once(user, "k", "d", first).body == "first"
        assert store.answer_once(user, "k", "d", first).body == "first"

    def test_a_process_that_dies_leaves_all_or_nothing(self, session, user, store):
        worker = Worker(die_before_the_answer_is_kept, user.pk)
        worker.wait_until_ready()
        worker.go()
        assert worker.ended() == 7
        worker.kill()
        assert store.load_state("s").step_count == 0
        answer = store.answer_once(user, "k", "d", lambda: Answer(status=200))
        assert not answer.replayed


def die_before_the_answer_is_kept(user_id: int) -> None:
    import os

    store = SessionStore()

    def work() -> Answer:
        store.increment_step_count("s")
        os._exit(7)

    store.answer_once(user_id, "k", "d", work)
