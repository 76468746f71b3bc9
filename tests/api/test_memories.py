"""Memories over HTTP: users have their own, and no others."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from helix_sessions.memory import MemoryStore
from tests.rows import each

pytestmark = pytest.mark.django_db

URL = "/api/memories/"


def home(user: Any, *more: str) -> list[str]:
    return ["owner", str(user.pk), *more]


def deletion(namespace: Any, key: str = "k") -> str:
    from urllib.parse import urlencode

    return f"{URL}?{urlencode({'namespace': json.dumps(namespace), 'key': key})}"


def test_the_way_of_a_memory(api: Any, user: Any) -> None:
    body = {"namespace": home(user), "key": "tea", "value": {"b": "Green tea", "a": "\x00"}, "ttl": 60.5}
    made = api.post(URL, body)
    assert made.status_code == 201
    memory = made.json()
    assert (memory["namespace"], memory["key"], memory["value"]) == (body["namespace"], "tea", body["value"])
    assert memory["expires_at"] is not None
    assert memory["score"] is None

    found = api.get(URL, {"prefix": json.dumps(home(user)), "query": "TEA"}).json()
    assert found["next_cursor"] is None
    assert found["items"][0]["score"] > 0
    assert {**found["items"][0], "score": None} == memory
    assert api.get(URL).json()["items"] == [memory]
    assert api.get(URL, {"query": ""}).json()["items"] == [memory]
    assert api.get(URL, {"query": "coffee"}).json()["items"] == []

    assert api.delete(deletion(home(user), "tea")).status_code == 204
    assert api.delete(deletion(home(user), "tea")).status_code == 204
    assert api.get(URL).json()["items"] == []


def test_what_is_indexed_can_be_chosen(api: Any, user: Any) -> None:
    body = {"namespace": home(user), "value": {"a": "tea", "b": "coffee"}}
    assert api.post(URL, {**body, "key": "none", "index": False}).status_code == 201
    assert api.post(URL, {**body, "key": "some", "index": ["b"]}).status_code == 201
    assert api.post(URL, {**body, "key": "all", "index": None}).status_code == 201
    found = api.get(URL, {"query": "coffee"}).json()["items"]
    assert {memory["key"] for memory in found} == {"some", "all"}


def test_pages(api: Any, user: Any, memories: MemoryStore) -> None:
    for number in range(5):
        memories.put(home(user), f"{number}", {"text": "tea"})
    seen, query = [], {"limit": 2, "query": "tea"}
    while True:
        page = api.get(URL, query)
        seen += [memory["key"] for memory in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        assert ("Link" in page.headers) is (cursor is not None)
        if cursor is None:
            break
        query["cursor"] = cursor
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


@pytest.fixture
def memories() -> MemoryStore:
    return MemoryStore()


def test_foreign_namespaces_are_forbidden(api: Any, user: Any, memories: MemoryStore, stranger: Any) -> None:
    theirs = home(stranger)
    memories.put(theirs, "k", {"text": "secret"})
    for namespace in (
        theirs,
        [*theirs, "x"],
        ["owner"],
        ["team"],
        ["owner", f"{user.pk}0"],
        ["owner", "unknown"],
    ):
        for answer in (
            api.get(URL, {"prefix": json.dumps(namespace)}),
            api.post(URL, {"namespace": namespace, "key": "k", "value": {}}),
            api.delete(deletion(namespace)),
        ):
            assert answer.status_code == 403, namespace
            assert answer.json()["code"] == "foreign_namespace"
            assert "secret" not in answer.content.decode()
    assert api.get(URL, {"prefix": "[]"}).status_code == 403
    assert memories.get(theirs, "k").value == {"text": "secret"}  # type: ignore[union-attr]
    assert api.get(URL, {"query": "secret"}).json()["items"] == []


def test_permissions_for_all(client_of: Any, memories: MemoryStore, stranger: Any) -> None:
    memories.put(home(stranger), "k", {"text": "tea"})
    for permission, may_write in (("view_all_sessions", False), ("manage_all_sessions", True)):
        other = get_user_model().objects.create_user(permission)
        other.user_permissions.add(Permission.objects.get(codename=permission))
        client = client_of(get_user_model().objects.get(pk=other.pk))
        assert len(client.get(URL, {"prefix": "[]", "query": "tea"}).json()["items"]) == 1
        body = {"namespace": home(stranger, "x"), "key": "k", "value": {}}
        assert client.post(URL, body).status_code == (201 if may_write else 403)
        assert client.delete(deletion(home(stranger, "x"))).status_code == (204 if may_write else 403)


@each(
    "change",
    [
        {"namespace": []},
        {"namespace": "owner"},
        {"namespace": None},
        {"key": ""},
        {"key": 5},
        {"key": "x" * 256},
        {"value": []},
        {"value": None},
        {"ttl": 0},
        {"ttl": "x"},
        {"index": "text"},
        {"index": True},
        {"more": 1},
    ],
    ids=str,
)
def test_bad_bodies_are_refused(api: Any, user: Any, memories: MemoryStore, change: dict[str, Any]) -> None:
    body = {"namespace": home(user), "key": "k", "value": {}, **change}
    assert api.post(URL, body).status_code in (400, 403, 422)
    assert memories.search(()) == []


@each("prefix", ["owner", "{}", "[1]", "[[]]", "[" * 5000, '["a"', '["\\ud800"]', ""], ids=lambda v: v[:10])
def test_bad_prefixes_are_refused(api: Any, prefix: str) -> None:
    assert api.get(URL, {"prefix": prefix}).status_code in (400, 403)
    assert api.delete(f"{URL}?namespace={prefix}&key=k").status_code in (400, 403)
    assert api.delete(URL).status_code == 400


def test_a_repeated_post_is_one(api: Any, user: Any, memories: MemoryStore) -> None:
    body = {"namespace": home(user), "key": "k", "value": {"n": 1}}
    first = api.post(URL, body, headers={"Idempotency-Key": "a"})
    memories.delete(home(user), "k")
    again = api.post(URL, body, headers={"Idempotency-Key": "a"})
    assert first.content == again.content
    assert memories.get(home(user), "k") is None
