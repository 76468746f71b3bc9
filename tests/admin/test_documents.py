"""Documents on a page: masked, cut, and never markup."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.admin import documents
from helix_sessions.admin.documents import MASK, completed, masked, shown, shown_beginning
from helix_sessions.store import SessionStore
from tests.admin.places import APP, LIST, PAGES, action, page_of
from tests.rows import each

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON_VALUES, share=st.floats(0, 1))
def test_any_beginning_can_be_completed(value: Any, share: float):
    text = json.dumps(value, ensure_ascii=False)
    json.loads(completed(text[: int(len(text) * share)]))


@given(value=st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=5), cut=st.integers(0, 200))
def test_a_beginning_holds_what_the_whole_holds(value: dict[str, str], cut: int):
    read = json.loads(completed(json.dumps(value, ensure_ascii=False)[:cut]))
    for key, text in (read or {}).items():
        assert value[key] == text or value[key].startswith(text[:-1])


@each(
    "key", ["password", "PASSWORD", "db_password", "accessToken", "api_key", "Authorization", "client_secret"]
)
def test_secrets_are_masked(key: str):
    assert masked({"a": [{key: {"deep": ["value"]}}]}) == {"a": [{key: MASK}]}


@each("key", ["input_tokens", "tokens", "author", "passage", "name"])
def test_other_keys_are_not(key: str):
    assert masked({key: "value"}) == {key: "value"}


def test_keys_to_mask_are_a_setting(settings: Any):
    settings.HELIX_SESSIONS = {"MASKED_KEYS": ["iban"]}
    assert masked({"IBAN": "DE1", "password": "x"}) == {"IBAN": MASK, "password": "x"}


def test_secrets_are_masked_where_a_document_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "CHARACTERS_SHOWN", 60)
    document = shown({"password": "hunter2" * 50, "rest": "x" * 500})
    assert document.is_cut
    assert "hunter2" not in document.text


def test_as_deep_as_documents_may_be():
    value: Any = "end"
    for _ in range(500):
        value = {"k": value}
    assert shown(value).text.count("k") > 100


def test_a_cut_document_says_how_large_it_is():
    document = shown_beginning('["aaaa', 25_000_000)
    assert (document.is_cut, document.size, document.value) == (True, "25.0 MB", ["aaaa…"])


class Inline(HTMLParser):
    """Finds what a strict Content-Security-Policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _value in attrs}
        if tag == "style" or (tag == "script" and "src" not in names):
            self.found.append(tag)
        self.found += [name for name in names if name == "style" or name.startswith("on")]
        self.found += [str(value) for name, value in attrs if str(value).startswith("javascript:")]


HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(1)>"\'><b>{{ 7|add:7 }}{% now "Y" %}\u202e'


@pytest.mark.django_db
class TestHostileContent:
    @pytest.fixture
    def addresses(self, store: SessionStore) -> list[str]:
        from dataclasses import replace

        bad = HOSTILE[:200]
        store.create_session(
            bad,
            agent_type=bad,
            user_id=bad,
            tags=[bad],
            metadata={bad: bad},
            custom_state={bad: [bad, {bad: bad}]},
        )
        store.create_checkpoint(bad, {"checkpoint_id": "one"})
        store.merge_custom_state(bad, [{"op": "set", "path": [bad, 0], "value": f"{bad}!"}])
        run = store.create_run(bad, run_id=bad)
        call = {"id": bad, "name": bad, "arguments": {bad: bad}}
        store.append_messages(bad, [{"role": role, "content": bad} for role in ("user", "system")])
        store.append_messages(bad, [{"role": "assistant", "content": [{"text": bad}], "tool_calls": [call]}])
        store.append_messages(
            bad, [{"role": "tool", "tool_call_id": bad, "tool_name": bad, "content": bad, "is_error": True}]
        )
        for kind in ("note", "tool_called", "tool_error", "operator_action", "llm_error", bad):
            store.emit_event(bad, kind, {"tool_call_id": f"{bad}2", "error": bad, "by": bad, bad: bad})
        store.emit_event(bad, "status_changed", {"from": {"x": bad}, "to": [bad]})
        store.emit_event(bad, "metadata_patched", {"keys": [bad, 1, None]})
        store.emit_event(bad, "run_finished", [bad])
        store.emit_event(bad, "checkpoint_created", bad)
        store.update_run_status(bad, run.run_id, "failed", error=bad, output={bad: bad}, usage={bad: bad})
        store.create_run(bad, run_id="second")
        store.update_run_status(bad, "second", "completed", usage={"input_tokens": bad, "cost": [bad]})
        store.stage_changes(bad, bad, bad, [{"op": "set", "path": [bad], "value": bad}])
        store.add_sub_session_refs(bad, [{"sub_session_id": f"{bad}2", "agent_type": bad}])
        pending = {bad: {"tool_name": bad, "arguments": bad, "kind": bad, "deadline": bad}, "odd": bad}
        state = store.load_state(bad)
        store.save_state(
            bad,
            replace(state, pending_client_tool_calls=pending, suspended_awaiting_children={bad: bad}),
        )
        store.set_interrupt_flag(bad, bad)
        store.update_status(bad, "failed", error=bad, failure_reason=bad, interrupt_context={bad: bad})
        return [
            APP,
            LIST,
            f"{LIST}?is=stopping&status=failed",
            *(page_of(bad, page) for page in PAGES),
            page_of(bad, "state", "?from=one"),
            page_of(bad, "live", "?after=0"),
            action("delete", bad),
            action("branch", bad),
        ]

    def test_is_text_everywhere(self, admin_client: Client, addresses: list[str]):
        for address in addresses:
            response = admin_client.get(address)
            assert response.status_code == 200, address
            text = response.content.decode()
            assert "<script>alert" not in text, address
            assert "<img src=x" not in text, address
            assert "><b>" not in text, address

    def test_no_inline_script_or_style(self, admin_client: Client, addresses: list[str]):
        for address in addresses:
            page = Inline()
            page.feed(admin_client.get(address).content.decode())
            assert page.found == [], address

    def test_searching_for_it(self, admin_client: Client, addresses: list[str]):
        response = admin_client.get(LIST, {"q": HOSTILE, "created_from": HOSTILE, "agent": HOSTILE})
        assert "<script>alert" not in response.content.decode()

    def test_as_a_reason(self, admin_client: Client, addresses: list[str]):
        bad = HOSTILE[:200]
        data = {"ids": json.dumps([bad]), "reason": HOSTILE, "change": "at", "expires_at": HOSTILE}
        assert "<script>alert" not in admin_client.post(action("set_expiry"), data).content.decode()
        admin_client.post(action("discard_staging"), data)
        assert "<script>alert" not in admin_client.get(page_of(bad, "log")).content.decode()


@pytest.mark.django_db
def test_huge_documents_are_cut_by_the_database(admin_client: Client, store: SessionStore):
    store.create_session("huge", agent_type="a", custom_state={"text": "y" * 3_000_000})
    store.append_messages("huge", [{"role": "user", "content": "x" * 3_000_000}])
    store.emit_event("huge", "note", {"text": "z" * 3_000_000})
    for page in PAGES:
        assert len(admin_client.get(page_of("huge", page)).content) < 300_000
    response = admin_client.get(page_of("huge"))
    assert b"3.0 MB" in response.content
    assert len(admin_client.get(page_of("huge", "raw/2")).content) > 3_000_000


@pytest.mark.django_db
def test_secrets_do_not_reach_the_pages(admin_client: Client, store: SessionStore):
    secret = {"password": "hunter2", "nested": [{"api_key": "hunter2"}]}
    store.create_session("s", agent_type="a", metadata=secret, custom_state=secret)
    store.append_messages("s", [{"role": "user", "content": "hi", **secret}])
    store.emit_event("s", "note", secret)
    store.stage_changes("s", "step", "call", [{"op": "set", "path": ["x"], "value": secret}])
    run = store.create_run("s")
    store.update_run_status("s", run.run_id, "completed", output=secret, usage=secret)
    addresses = [*(page_of("s", page) for page in PAGES), page_of("s", "raw/state"), page_of("s", "raw/3")]
    for address in addresses:
        assert b"hunter2" not in admin_client.get(address).content, address
