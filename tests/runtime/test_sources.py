"""The context sources that come with the app."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidInput, NotConfigured
from helix_sessions.runtime import (
    UNAVAILABLE,
    CalledText,
    ContextSource,
    FileInstructions,
    FixedText,
    SettingText,
    StoredInstructions,
    Today,
    configured_sources,
)
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState
from tests.rows import each

STATE = SessionState(session_id="s", agent_type="writer", location={"folder": "a/b"})


class TestTexts:
    def test_a_fixed_text_is_told_as_it_is(self) -> None:
        source: ContextSource = FixedText("rules", "Be brief.")
        assert source.observe(STATE) == "Be brief."
        assert source.baseline("Be brief.") == "Be brief."

    def test_a_change_says_what_it_replaces(self) -> None:
        source = FixedText("rules", "")
        assert source.update("a", "b") == "What you were told as 'rules' is replaced by this:\n\nb"
        assert source.update("", "b") == "b"
        assert (
            source.update("a", "")
            == source.removed("a")
            == ("What you were told as 'rules' no longer applies.")
        )
        assert source.removed("") == ""

    def test_a_setting(self, settings: Any) -> None:
        source = SettingText("HOUSE_RULES")
        assert source.key == "HOUSE_RULES"
        assert source.observe(STATE) is UNAVAILABLE
        settings.HOUSE_RULES = {"tone": "dry"}
        assert source.observe(STATE) == {"tone": "dry"}
        assert source.baseline({"tone": "dry"}) == '{\n  "tone": "dry"\n}'
        settings.HOUSE_RULES = lambda session: f"You are a {session.agent_type}."
        assert source.observe(STATE) == "You are a writer."

    def test_a_function(self) -> None:
        source = CalledText("who", lambda session: session.session_id)
        assert source.observe(STATE) == "s"
        assert CalledText("who", f"{__name__}.nobody").observe(STATE) is UNAVAILABLE


def nobody(session: SessionState) -> Any:
    return UNAVAILABLE


class TestToday:
    @each(
        ("zone", "date"),
        [("UTC", "2026-01-01"), ("Pacific/Auckland", "2026-01-02"), ("Etc/GMT+12", "2026-01-01")],
    )
    def test_the_date_is_that_of_the_zone(self, zone: str, date: str, monkeypatch: Any) -> None:
        now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        monkeypatch.setattr("django.utils.timezone.now", lambda: now)
        source = Today(zone)
        value = source.observe(STATE)
        assert value == {"date": date, "time_zone": zone}
        assert source.baseline(value) == f"Today is {date} ({zone})."
        assert date in source.update({}, value)

    def test_the_zone_may_depend_on_the_session(self) -> None:
        source = Today(lambda session: "Europe/Rome")
        assert source.observe(STATE)["time_zone"] == "Europe/Rome"

    @each("zone", ["Mars/Base", "../etc/passwd", "", "a\x00b"])
    def test_an_unknown_zone_is_refused(self, zone: str) -> None:
        with pytest.raises(InvalidInput):
            Today(zone)
        with pytest.raises(InvalidInput):
            Today(lambda session: zone).observe(STATE)


class TestFiles:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "AGENTS.md").write_text("secret")
        (tmp_path / "AGENTS.md").write_text("above the root")
        root = tmp_path / "root"
        (root / "a" / "b" / "c").mkdir(parents=True)
        return root

    def test_files_are_found_upwards_the_general_ones_first(self, root: Path) -> None:
        (root / "AGENTS.md").write_text("one")
        (root / "a" / "b" / "AGENTS.md").write_text("two")
        (root / "a" / "b" / "c" / "AGENTS.md").write_text("too deep")
        source = FileInstructions(root, start="a/b")
        value = source.observe(STATE)
        assert value == [{"path": "AGENTS.md", "text": "one"}, {"path": "a/b/AGENTS.md", "text": "two"}]
        assert source.baseline(value) == (
            "Instructions from AGENTS.md:\n\none\n\nInstructions from a/b/AGENTS.md:\n\ntwo"
        )

    def test_the_start_may_depend_on_the_session(self, root: Path) -> None:
        (root / "a" / "NOTES.md").write_text("n")
        source = FileInstructions(root, ["NOTES.md"], start=lambda session: session.location["folder"])
        assert source.observe(STATE) == [{"path": "a/NOTES.md", "text": "n"}]

    @each("start", ["..", "a/../..", "/", "../outside"])
    def test_a_start_outside_the_root_is_refused(self, root: Path, start: str) -> None:
        with pytest.raises(InvalidInput):
            FileInstructions(root, start=start).observe(STATE)

    def test_a_linked_directory_that_leaves_the_root_is_refused(self, root: Path) -> None:
        (root / "way").symlink_to(root.parent / "outside")
        with pytest.raises(InvalidInput):
            FileInstructions(root, start="way").observe(STATE)

    def test_a_link_that_leaves_the_root_is_passed_over(self, root: Path) -> None:
        (root / "AGENTS.md").symlink_to(root.parent / "outside" / "AGENTS.md")
        (root / "a" / "AGENTS.md").symlink_to("../../outside/AGENTS.md")
        assert FileInstructions(root, start="a").observe(STATE) == []

    def test_a_link_that_stays_inside_is_followed(self, root: Path) -> None:
        (root / "rules.md").write_text("rules")
        (root / "AGENTS.md").symlink_to("rules.md")
        assert FileInstructions(root).observe(STATE) == [{"path": "AGENTS.md", "text": "rules"}]

    def test_the_root_may_be_a_link_itself(self, root: Path) -> None:
        (root / "AGENTS.md").write_text("one")
        link = root.parent / "link"
        link.symlink_to(root)
        assert FileInstructions(link).observe(STATE) == [{"path": "AGENTS.md", "text": "one"}]

    def test_long_files_are_cut_and_odd_bytes_replaced(self, root: Path) -> None:
        (root / "AGENTS.md").write_bytes(b"\xff" + b"x" * 20)
        assert FileInstructions(root, max_bytes=5).observe(STATE) == [
            {"path": "AGENTS.md", "text": "\ufffdxxxx\n[The file is longer.]"}
        ]

    def test_only_files_are_read(self, root: Path) -> None:
        (root / "AGENTS.md").mkdir()
        os.mkfifo(root / "NOTES.md")
        assert FileInstructions(root, ["AGENTS.md", "NOTES.md"]).observe(STATE) == []

    def test_a_missing_root_is_unavailable(self, root: Path) -> None:
        assert FileInstructions(root / "nowhere").observe(STATE) is UNAVAILABLE

    @each("name", ["../AGENTS.md", "", "..", "a/b"])
    def test_names_have_no_directories(self, root: Path, name: str) -> None:
        with pytest.raises(InvalidInput):
            FileInstructions(root, [name])

    def test_what_is_left_is_told_whole_and_what_is_gone_is_revoked(self, root: Path) -> None:
        source = FileInstructions(root)
        one, two = {"path": "AGENTS.md", "text": "one"}, {"path": "a/AGENTS.md", "text": "two"}
        assert source.update([one, two], [one]) == (
            "These instructions replace all earlier ones from files.\n\nInstructions from AGENTS.md:\n\none"
        )
        assert source.update([], [one]) == source.baseline([one])
        assert source.update([one], []) == source.removed([one]) != ""
        assert source.removed([]) == ""


@pytest.mark.django_db
class TestStoredInstructions:
    def test_they_are_those_of_the_agent_type(self, store: SessionStore) -> None:
        source = StoredInstructions()
        assert source.observe(STATE) is None
        assert source.baseline(None) == ""
        store.set_instructions("*", "Be kind.")
        store.set_instructions("reader", "Read.")
        assert source.observe(STATE) == "Be kind."
        store.set_instructions("writer", "Write.")
        assert source.observe(STATE) == "Write."

    def test_every_version_is_kept(self, store: SessionStore) -> None:
        for text in ("one", "two", "two", None, None, "three"):
            store.set_instructions("writer", text)
        revisions = store.list_instructions_revisions("writer")
        assert [(each.number, each.text) for each in revisions] == [
            (4, "three"),
            (3, None),
            (2, "two"),
            (1, "one"),
        ]
        assert store.get_instructions("writer") == "three"

    def test_a_session_is_told_of_a_change(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer")
        store.set_instructions("writer", "one")
        store.reconcile_context("s", [StoredInstructions()])
        store.set_instructions("writer", "two")
        store.reconcile_context("s", [StoredInstructions()])
        store.set_instructions("writer", None)
        store.reconcile_context("s", [StoredInstructions()])
        context = store.get_context("s")
        assert context.baseline == "one"
        assert [message["content"] for message in context.messages] == [
            "What you were told as 'instructions' is replaced by this:\n\ntwo",
            "What you were told as 'instructions' no longer applies.",
        ]

    @each("text", [5, "\x00", "\ud800", "x" * 1_000_001])
    def test_bad_texts(self, store: SessionStore, text: Any) -> None:
        with pytest.raises(InvalidInput):
            store.set_instructions("writer", text)

    @pytest.mark.django_db(transaction=True)
    def test_many_writers_at_once(self, store: SessionStore, run_threads: Any) -> None:
        store.set_instructions("writer", "first")
        outcomes = run_threads(4, lambda n: SessionStore().set_instructions("writer", str(n)))
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        revisions = store.list_instructions_revisions("writer")
        assert [each.number for each in revisions] == [5, 4, 3, 2, 1]
        assert store.get_instructions("writer") == revisions[0].text


class TestConfigured:
    def test_by_dotted_path(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {
            "CONTEXT_SOURCES": [
                "helix_sessions.runtime.StoredInstructions",
                ("helix_sessions.runtime.FixedText", {"key": "rules", "text": "x"}),
                (f"{__name__}.made", {}),
            ]
        }
        instructions, rules, third = configured_sources()
        assert isinstance(instructions, StoredInstructions)
        assert (rules.key, third.key) == ("rules", "third")

    @each("entry", ["nowhere.Source", ("helix_sessions.runtime.FixedText", {"colour": 1})])
    def test_a_wrong_entry_is_named(self, settings: Any, entry: Any) -> None:
        settings.HELIX_SESSIONS = {"CONTEXT_SOURCES": [entry]}
        with pytest.raises(NotConfigured, match=r"nowhere|FixedText"):
            configured_sources()

    def test_none_by_default(self) -> None:
        assert configured_sources() == []


def made() -> ContextSource:
    return FixedText("third", "")
