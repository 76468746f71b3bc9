"""The sources for the environment, for skills, for a glob of files and for an address."""

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from helix_sessions import egress
from helix_sessions.exceptions import InvalidInput
from helix_sessions.runtime import UNAVAILABLE, ContextSource, Environment, GlobFiles, Skills, UrlText
from helix_sessions.runtime.sources.front_matter import front_matter
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState

STATE = SessionState(session_id="s", agent_type="writer")


class TestEnvironment:
    def test_only_named_facts_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DATABASE_PASSWORD", "swordfish")
        monkeypatch.setenv("REGION", "eu")
        source: ContextSource = Environment()
        value: Any = source.observe(STATE)
        assert set(value) == {"system", "architecture", "time_zone"}
        assert "swordfish" not in source.baseline(value)
        named = Environment(["python"], variables=["REGION", "NOT_SET"])
        assert set(named.observe(STATE)) == {"python", "REGION"}
        assert "- REGION: eu" in named.baseline(named.observe(STATE))

    def test_what_may_be_a_secret_is_refused(self) -> None:
        for name in ("DATABASE_PASSWORD", "API_KEY_X", "GITHUB_TOKEN", "my_secret"):
            with pytest.raises(InvalidInput):
                Environment(variables=[name])
        with pytest.raises(InvalidInput):
            Environment(["environ"])

    def test_a_change_tells_what_changed(self) -> None:
        source = Environment()
        text = source.update({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4"})
        assert text == "The environment has changed:\n- b: 4\n- c: no longer known"
        assert source.removed({"a": "1"})
        assert source.baseline({}) == source.removed({}) == ""


class TestSkills:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        root = tmp_path / "skills"
        for folder, text in {
            "pdf": '---\nname: pdf-forms\ndescription: "Fill in PDF forms."\n---\n\nOpen the form.',
            "sql": "---\ndescription: >\n  Write SQL\n  that is fast.\nlicense: MIT\n---\nUse indexes.",
            "plain": "No front matter.",
        }.items():
            (root / folder).mkdir(parents=True)
            (root / folder / "SKILL.md").write_text(text)
        (root / "pdf" / "fields.md").write_text("All fields.")
        (root / "empty").mkdir()
        (tmp_path / "secret.md").write_text("secret")
        return root

    def test_names_and_descriptions_are_told(self, root: Path) -> None:
        source: ContextSource = Skills(root)
        value = source.observe(STATE)
        assert value == {"pdf-forms": "Fill in PDF forms.", "plain": "", "sql": "Write SQL that is fast."}
        text = source.baseline(value)
        assert "- pdf-forms: Fill in PDF forms." in text
        assert "read_skill" in text
        assert "Open the form" not in text
        assert source.update(value, {}) == source.removed(value) == "There are no skills any more."

    def test_the_body_is_read_by_the_tool(self, root: Path) -> None:
        skills = Skills(root)
        assert skills.read_skill({"name": "pdf-forms"}, None) == "Open the form."
        assert skills.read_skill({"name": "sql"}) == "Use indexes."
        assert skills.read_skill({"name": "pdf-forms", "file": "fields.md"}) == "All fields."
        assert skills.tool_schema["required"] == ["name"]

    def test_nothing_else_is_read(self, root: Path) -> None:
        (root / "pdf" / "out.md").symlink_to(root.parent / "secret.md")
        (root / "away").symlink_to(root.parent)
        skills = Skills(root)
        for arguments in (
            *({}, None, {"name": "nothing"}, {"name": 5}, {"name": "pdf"}, {"name": ".."}, {"name": "away"}),
            *({"name": "sql", "file": name} for name in ("../pdf/SKILL.md", "/etc/passwd", "no.md", "", 5)),
            {"name": "pdf-forms", "file": "out.md"},
            {"name": "pdf-forms", "file": "../../secret.md"},
        ):
            with pytest.raises(InvalidInput):
                skills.read_skill(arguments)

    def test_a_directory_that_is_not_there_is_unavailable(self, tmp_path: Path) -> None:
        assert Skills(tmp_path / "nowhere").observe(STATE) is UNAVAILABLE

    def test_limits(self, root: Path) -> None:
        assert len(Skills(root, max_skills=2).observe(STATE)) == 2  # type: ignore[arg-type]
        (root / "long").mkdir()
        (root / "long" / "SKILL.md").write_text(f"---\nname: {'x' * 65}\n---\n")
        assert len(Skills(root).observe(STATE)) == 3  # type: ignore[arg-type]


def test_front_matter() -> None:
    rows: dict[str, tuple[dict[str, str], str]] = {
        "no fields": ({}, "no fields"),
        "---\nname: a\n": ({}, "---\nname: a\n"),
        "---\nname: a\n---\nbody\n---\nmore": ({"name": "a"}, "body\n---\nmore"),
        "---\nname: 'it''s'\ndescription: \"a \\\"b\\\"\"\n---": (
            {"name": "it's", "description": 'a "b"'},
            "",
        ),
        "---\na: one\n  two\nb: |\n  x\n  y\n\nlist:\n  - 1\n---\n": (
            {"a": "one two", "b": "x\ny", "list": "- 1"},
            "",
        ),
        "\ufeff---\r\nname: a\r\n---\r\nbody": ({"name": "a"}, "body"),
        "---\nurl: http://a:80/b\nnot a field\n---\n": ({"url": "http://a:80/b"}, ""),
    }
    for text, wanted in rows.items():
        assert front_matter(text) == wanted, text


class TestGlobs:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        root = tmp_path / "root"
        (root / "b").mkdir(parents=True)
        (root / "b" / "two.md").write_text("two")
        (root / "a.md").write_text("one")
        (root / "c.txt").write_text("other")
        (tmp_path / "secret.md").write_text("secret")
        (root / "link.md").symlink_to(tmp_path / "secret.md")
        return root

    def test_files_in_the_order_of_their_paths(self, root: Path) -> None:
        source: ContextSource = GlobFiles(root, "**/*.md")
        value = source.observe(STATE)
        files = [{"path": "a.md", "text": "one"}, {"path": "b/two.md", "text": "two"}]
        assert value == {"files": files, "left_out": 1}
        assert source.baseline(value).startswith("File a.md:\n\none\n\nFile b/two.md:\n\ntwo")
        assert "secret" not in source.baseline(value)

    def test_a_change_tells_the_files_that_changed(self, root: Path) -> None:
        source = GlobFiles(root, "*.md", key="notes")
        before = source.observe(STATE)
        (root / "a.md").unlink()
        (root / "d.md").write_text("new")
        text = source.update(before, source.observe(STATE))
        assert text == "File d.md is now:\n\nnew\n\nFile a.md is gone."
        assert source.removed(before) == "The files *.md no longer apply."

    def test_limits(self, root: Path) -> None:
        for number in range(5):
            (root / f"n{number}.txt").write_text("x" * 100)
        few: Any = GlobFiles(root, "n*.txt", max_files=2).observe(STATE)
        assert (len(few["files"]), few["left_out"]) == (2, 3)
        little: Any = GlobFiles(root, "n*.txt", max_total_bytes=150, max_bytes=120).observe(STATE)
        assert len(little["files"][0]["text"]) == 100
        assert little["left_out"] == 3
        assert "3 more files are left out." in GlobFiles(root, "n*.txt").baseline(little)

    def test_patterns_that_lead_elsewhere_are_refused(self, root: Path) -> None:
        for pattern in ("../*.md", "/etc/*", "a/../../*", ""):
            with pytest.raises(InvalidInput):
                GlobFiles(root, pattern)
        assert GlobFiles(root / "nowhere", "*").observe(STATE) is UNAVAILABLE


class Answers(BaseHTTPRequestHandler):
    """Answers as its path says."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))  # type: ignore[attr-defined]
        if self.path == "/down":
            self.send_error(503)
        elif self.path.startswith("/to"):
            self.send_response(302)
            self.send_header("Location", self.path[3:] or "/to")
            self.end_headers()
        elif self.path == "/drip":
            self.send_response(200)
            self.end_headers()
            for _ in range(200):
                self.wfile.write(b"x")
                time.sleep(0.05)
        elif self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"short")
        elif self.path == "/headers":
            for _ in range(200):
                self.wfile.write(b"H")
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=latin-1")
            self.end_headers()
            self.wfile.write(self.server.text.encode("latin-1"))  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: Any) -> None:
        pass


class TestAddresses:
    @pytest.fixture
    def server(self) -> Iterator[Any]:
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        server.daemon_threads = True
        server.asked, server.text = [], "Rules: é"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        server.server_close()

    @pytest.fixture
    def text_at(self, server: Any) -> Callable[..., Any]:
        def source(path: str, **options: Any) -> UrlText:
            url = f"http://127.0.0.1:{server.server_port}{path}"
            return UrlText(url, **{"allow_private": True, "max_age": 0, **options})

        return source

    def test_a_text(self, text_at: Callable[..., UrlText], server: Any) -> None:
        source = text_at("/rules", headers={"Authorization": "Bearer x"})
        assert source.observe(STATE) == "Rules: é"
        assert source.baseline("Rules: é") == "Rules: é"
        assert server.asked[0][1]["Authorization"] == "Bearer x"

    def test_what_was_read_is_used_for_a_while(self, text_at: Callable[..., UrlText], server: Any) -> None:
        source = text_at("/rules", max_age=60)
        assert source.observe(STATE) == source.observe(STATE)
        assert len(server.asked) == 1
        down = text_at("/down", max_age=60)
        assert down.observe(STATE) is down.observe(STATE) is UNAVAILABLE
        assert len(server.asked) == 2

    @pytest.mark.django_db
    def test_unavailable_keeps_what_was_admitted(
        self, text_at: Callable[..., UrlText], server: Any, store: SessionStore
    ) -> None:
        store.create_session("s", agent_type="writer")
        source = text_at("/rules", key="rules")
        store.reconcile_context("s", [source])
        source.url = source.url.replace("/rules", "/down")
        assert store.reconcile_context("s", [source]).kind == "unchanged"
        assert store.get_context("s").baseline == "Rules: é"

    def test_limits_of_size_and_time(self, text_at: Callable[..., UrlText], server: Any) -> None:
        server.text = "x" * 1_000
        assert text_at("/rules", max_bytes=100).observe(STATE) == "x" * 100 + "\n[The text is longer.]"
        assert text_at("/rules", max_bytes=1_000).observe(STATE) == "x" * 1_000
        for path in ("/drip", "/headers"):
            began = time.monotonic()
            assert text_at(path, timeout=0.5).observe(STATE) is UNAVAILABLE, path
            assert time.monotonic() - began < 5, path
        assert text_at("/cut").observe(STATE) is UNAVAILABLE

    def test_redirects_are_followed_a_little(self, text_at: Callable[..., UrlText], server: Any) -> None:
        assert text_at("/to/rules").observe(STATE) == "Rules: é"
        assert text_at("/to").observe(STATE) is UNAVAILABLE
        assert text_at("/tofile:///etc/passwd").observe(STATE) is UNAVAILABLE
        other = f"http://localhost:{server.server_port}/rules"
        source = text_at(f"/to{other}", headers={"Authorization": "Bearer x"})
        assert source.observe(STATE) == "Rules: é"
        assert "Authorization" not in server.asked[-1][1]

    def test_private_addresses_are_refused(
        self, text_at: Callable[..., UrlText], server: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert text_at("/rules", allow_private=False).observe(STATE) is UNAVAILABLE
        assert UrlText(f"http://localhost:{server.server_port}/").observe(STATE) is UNAVAILABLE
        assert server.asked == []
        for address in (
            *(
                "127.0.0.1",
                "10.0.0.1",
                "192.168.1.1",
                "169.254.169.254",
                "100.64.0.1",
                "0.0.0.0",
                "224.0.0.1",
            ),
            *("::1", "fe80::1%eth0", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"),
        ):
            assert egress.is_private(address), address
        for address in ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"):
            assert not egress.is_private(address), address

    def test_a_redirect_into_a_private_network_is_refused(
        self, server: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first host counts as public here; where it redirects to does not."""
        real = egress.is_private
        asked: list[str] = []

        def first_is_public(address: str) -> bool:
            asked.append(address)
            return len(asked) > 1 and real(address)

        monkeypatch.setattr(egress, "is_private", first_is_public)
        url = f"http://127.0.0.1:{server.server_port}"
        assert UrlText(f"{url}/to{url}/rules").observe(STATE) is UNAVAILABLE
        assert len(server.asked) == 1

    def test_only_addresses_of_the_web(self) -> None:
        for url in (
            *("ftp://a.example/x", "file:///etc/passwd", "//a.example", "a.example", "http://", "http:///x"),
            *(
                "http://user:pass@a.example/",
                "http://a.example/ x",
                "http://a.example/\r\nX: y",
                "http://a:b/",
            ),
            *("http://é.example/", None),
        ):
            with pytest.raises(InvalidInput):
                UrlText(url)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            UrlText("http://a.example/", timeout=0)
