"""The site, the package index and the demo show the pages that the repository has."""

import re
import tomllib

import pytest
from django.test import Client

from tests.docs.pages import DOCS, ROOT, all_pages, page
from tools.docs_site import REPOSITORY, SITE, on_page_markdown, slug, with_absolute_links

MKDOCS = (ROOT / "mkdocs.yml").read_text()
NAMES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_site_has_every_page_once():
    assert sorted(re.findall(r"^ +- (\S+\.md)$", MKDOCS, re.MULTILINE)) == NAMES


def test_one_address_of_the_repository_and_one_of_the_site():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls.pop("Documentation") == SITE
    assert all(url.startswith(REPOSITORY) for url in urls.values())
    assert f"site_url: {SITE}\nrepo_url: {REPOSITORY}\n" in MKDOCS
    assert SITE in page("../README.md").text


def test_the_readme_is_read_on_other_sites():
    """Its links and pictures are addresses, and lead to files of the repository."""
    readme = page("../README.md")
    assert not [link for link in readme.links if not link.startswith("https://")]
    ours = re.findall(rf"{REPOSITORY}/(?:blob|raw)/main/([^)#\s\"]+)", readme.text)
    assert len(ours) > 20
    for path in ours:
        assert (ROOT / path).exists(), path


def test_a_page_of_the_site():
    class File:
        src_uri = "how-to/x.md"

    class Shown:
        file = File()

    links = "[a](../../README.md#try) [b](../index.md) [c](y.md)"
    text = f"{links}\n\n```python shop/agents.py\n1\n```\n\n```python settings\n"
    assert on_page_markdown(text, page=Shown()) == (
        f"[a]({REPOSITORY}/blob/main/README.md#try) [b](../index.md) [c](y.md)\n\n"
        '```python title="shop/agents.py"\n1\n```\n\n```python\n'
    )
    assert with_absolute_links("[a](../LICENSE)", "index.md") == f"[a]({REPOSITORY}/blob/main/LICENSE)"


def test_anchors_are_those_of_the_repository():
    headings = re.findall(r"^#+ +(.+)$", page("reference/store.md").prose, re.MULTILINE)
    assert {slug(heading) for heading in headings} <= page("reference/store.md").anchors


@pytest.mark.django_db
def test_the_demo_shows_every_page(client: Client):
    for name in NAMES:
        response = client.get(f"/docs/{name}")
        body = response.content.decode()
        assert response.status_code == 200, name
        assert "<h1" in body, name
        assert "```" not in re.sub(r"<code.*?</code>", "", body, flags=re.DOTALL), name
    assert len(all_pages()) >= len(NAMES)


@pytest.mark.django_db
def test_every_picture_is_shown_and_served(client: Client):
    texts = "".join(found.text for found in all_pages())
    for path in (DOCS / "images").iterdir():
        assert f"images/{path.name}" in texts, path.name
        response = client.get(f"/docs/images/{path.name}")
        assert b"".join(response) == path.read_bytes()
        assert response["Content-Type"] in ("image/png", "image/svg+xml"), path.name
    for found in all_pages():
        for alt, target in found.pictures:
            assert alt, f"{found.name}: {target} has no words"
            assert (found.path.parent / target).exists(), f"{found.name}: {target}"


@pytest.mark.django_db
def test_the_numbers_can_be_fetched(client: Client):
    response = client.get("/docs/performance.json")
    assert b"".join(response) == (DOCS / "performance.json").read_bytes()


@pytest.mark.django_db
def test_the_demo_searches_its_pages(client: Client):
    body = client.get("/docs/", {"q": "PgBouncer init_command"}).content.decode()
    assert "how-to/databases.md" in body
    assert "how-to/memory.md" not in body
    assert "No page has all these words." in client.get("/docs/", {"q": "<script>zebra"}).content.decode()
