"""One navigation on all pages, for what its user may see."""

import re
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from helix_sessions.store import SessionStore
from tests.admin.places import (
    APP,
    AUDIT,
    LIST,
    PAGES,
    WAITING,
    action,
    make_busy_session,
    make_stuck,
    page_of,
)

pytestmark = pytest.mark.django_db

WORKERS = f"{LIST}workers/"


def navigation(client: Client, address: str) -> tuple[list[str], list[str]]:
    """The labels of the navigation of a page, and those that are marked as where one is."""
    page = client.get(address).content.decode()
    drawn = re.findall(r'<div class="hx-nav">(.*?)</nav>', page, re.DOTALL)
    assert len(drawn) == 1, address
    links = re.findall(r"<a ([^>]*)>([^<]*)</a>", drawn[0])
    return [label for _, label in links], [label for marks, label in links if "aria-current" in marks]


def test_is_on_every_page_and_says_where_one_is(admin_client: Client, store: SessionStore):
    make_busy_session(store)
    store.set_instructions("support", "Be kind.")
    places = {
        APP: ["Now"],
        f"{LIST}now/?window=hour": ["Now"],
        LIST: ["Sessions"],
        WAITING: ["Waiting"],
        WORKERS: ["Workers"],
        AUDIT: ["Audit"],
        f"{APP}instructions/": ["Instructions"],
        f"{APP}instructions/support/change/": ["Instructions"],
        f"{APP}memory/": [],
        f"{APP}toolrule/": [],
        f"{APP}webhook/": [],
        action("fail", "busy"): [],
        **{page_of("busy", name): ["Sessions"] for name in PAGES},
    }
    for address, current in places.items():
        labels, marked = navigation(admin_client, address)
        assert marked == current, address
        assert labels == ["Now", "Sessions", "Waiting", "Workers", "Audit", "Instructions"], address


def test_shows_what_its_user_may_see(viewer: Client, client_with: Any):
    labels, _ = navigation(viewer, LIST)
    assert labels == ["Now", "Sessions", "Waiting", "Workers"]
    auditor = client_with("view_auditentry")
    assert navigation(auditor, AUDIT)[0] == ["Audit"]
    assert "data-hx-search" not in auditor.get(AUDIT).content.decode()


def test_the_search_is_on_every_page(viewer: Client, store: SessionStore):
    make_busy_session(store)
    for address in (APP, WAITING, page_of("busy")):
        assert f'<form action="{LIST}" method="get" role="search"' in viewer.get(address).content.decode()


def test_the_way_back_to_the_list_keeps_its_filters(viewer: Client, store: SessionStore):
    make_busy_session(store)
    listed = viewer.get(LIST, {"agent": "support"}).content.decode()
    found = re.search(r'href="([^"]*busy/change/\?[^"]*)"', listed)
    assert found is not None
    assert f'href="{LIST}?agent=support">Sessions</a>' in viewer.get(found[1]).content.decode()


def test_the_first_page_of_the_admin_leads_to_it(
    admin_client: Client, viewer: Client, stranger: Client, store: SessionStore
):
    page = viewer.get("/admin/").content.decode()
    assert f'href="{APP}"' in page
    assert navigation(viewer, "/admin/")[0] == ["Now", "Sessions", "Waiting", "Workers"]
    assert "Nothing needs you now." in page
    make_busy_session(store)
    make_stuck("busy")
    cache.clear()
    page = viewer.get("/admin/").content.decode()
    assert f'href="{LIST}?is=stuck"' in page
    assert "Nothing needs you now." not in page
    store.create_session("failed", agent_type="support")
    store.compare_and_set_status("failed", ["active"], "failed", error={"message": "No space left"})
    cache.clear()
    page = viewer.get("/admin/").content.decode()
    assert f'href="{LIST}?status=failed&amp;within=day"' in page  # what an incident is made of
    assert "hx-entry-point" not in stranger.get("/admin/").content.decode()
    assert "Users" in admin_client.get("/admin/").content.decode()  # what was there still is
