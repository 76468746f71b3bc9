"""Memories in the console: found, read, and deleted by those who may."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from helix_sessions.admin.documents import CHARACTERS_SHOWN
from helix_sessions.memory import MemoryStore
from helix_sessions.models import Memory
from tests.admin.places import APP

pytestmark = pytest.mark.django_db

LIST = f"{APP}memory/"
HOSTILE = "<script>alert('x')</script>"
HOME = ("owner", "7")


@pytest.fixture
def memories() -> MemoryStore:
    return MemoryStore()


def page_of(key: str) -> str:
    return f"{LIST}{Memory.objects.get(key=key).pk}/change/"


def keys_of(response: Any) -> list[str]:
    return [row.key for row in response.context["cl"].result_list]


def test_they_are_listed_and_read(admin_client: Client, memories: MemoryStore) -> None:
    memories.put(HOME, "tea", {"text": "Likes green tea", "password": "hunter2"}, ttl=3600)
    memories.put(("team",), "old", {"text": "gone"}, ttl=0.000001)
    listed = admin_client.get(LIST)
    assert keys_of(listed) == ["tea"]
    page = listed.content.decode()
    assert "Likes green tea" in page
    assert "owner / 7" in page
    detail = admin_client.get(page_of("tea")).content.decode()
    assert "Likes green tea" in detail
    assert "hunter2" not in page + detail


def test_they_are_found_by_words_and_by_namespace(admin_client: Client, memories: MemoryStore) -> None:
    memories.put(HOME, "tea", {"text": "green tea"})
    memories.put(("team", "a"), "coffee", {"text": "coffee"})
    for term, expected in (
        ("TEA", ["tea"]),
        ("owner/7", ["tea"]),
        ("team", ["coffee"]),
        ("owner/77", []),
        ("' OR 1=1 --", []),
        ("/" * 50, []),
    ):
        assert keys_of(admin_client.get(LIST, {"q": term})) == expected, term


def test_hostile_content_is_only_text(admin_client: Client, memories: MemoryStore) -> None:
    memories.put((HOSTILE, HOSTILE), HOSTILE, {HOSTILE: HOSTILE, "\x00": "\x00"})
    for response in (admin_client.get(LIST), admin_client.get(page_of(HOSTILE))):
        page = response.content.decode()
        assert HOSTILE not in page
        assert "alert(" in page


def test_only_those_who_may(
    client_with: Callable[..., Client], client: Client, memories: MemoryStore
) -> None:
    memories.put(HOME, "tea", {"text": "tea"})
    assert client.get(LIST).status_code == 302
    assert client_with("view_session").get(LIST).status_code == 403
    viewer = client_with("view_memory")
    assert viewer.get(LIST).status_code == 200
    assert viewer.get(page_of("tea")).status_code == 200
    delete = page_of("tea").replace("change", "delete")
    assert viewer.post(delete, {"post": "yes"}).status_code == 403
    assert viewer.get(f"{LIST}add/").status_code == 403


def test_deleting_goes_through_the_store(admin_client: Client, memories: MemoryStore) -> None:
    for key in ("a", "b", "c"):
        memories.put(HOME, key, {"text": "tea"})
    admin_client.post(page_of("a").replace("change", "delete"), {"post": "yes"})
    chosen = [Memory.objects.get(key=key).pk for key in ("b", "c")]
    admin_client.post(LIST, {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})
    assert memories.search((), query="tea") == memories.search(()) == []
    assert LogEntry.objects.count() == 3


def test_encrypted_memories(admin_client: Client, memories: MemoryStore, settings: Any) -> None:
    key = base64.b64encode(b"k" * 32).decode()
    settings.HELIX_SESSIONS = {"ENCRYPTION": {"keys": {"one": key}, "active": "one"}}
    memories.put(HOME, "tea", {"text": "green tea"})
    assert "green tea" in admin_client.get(LIST).content.decode()
    assert "green tea" in admin_client.get(page_of("tea")).content.decode()
    assert keys_of(admin_client.get(LIST, {"q": "green"})) == ["tea"]
    settings.HELIX_SESSIONS = {}
    assert "not configured" in admin_client.get(LIST).content.decode()


def test_a_large_value_is_cut(admin_client: Client, memories: MemoryStore) -> None:
    memories.put(HOME, "long", {"text": "x" * 50_000})
    page = admin_client.get(page_of("long")).content.decode()
    assert "x" * 100 in page
    assert "x" * CHARACTERS_SHOWN not in page
