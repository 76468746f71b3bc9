"""What the code offers is in its reference, and what the reference lists is in the code."""

import dataclasses
import inspect
import re
from typing import Any

from helix_sessions import checks, conf, exceptions, models, types
from helix_sessions.memory import MemoryStore
from helix_sessions.store import SessionStore
from tests.docs.pages import ROOT, page
from tests.rows import each

PACKAGE = ROOT / "helix_sessions"


def source() -> str:
    return "\n".join(path.read_text() for path in sorted(PACKAGE.rglob("*.py")))


def public_calls() -> dict[str, Any]:
    return {
        name: getattr(SessionStore, name)
        for name in dir(SessionStore)
        if not name.startswith("_") and callable(getattr(SessionStore, name))
    }


def signature(name: str, call: Any) -> str:
    """`name(a, *, b=1)` as a page shows it."""
    shown: list[str] = []
    named = False
    parameters = [p for p in inspect.signature(call).parameters.values() if p.name != "store"]
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            shown.append("*")
            named = True
        shown.append(str(parameter.replace(annotation=parameter.empty)))
    return f"{name}({', '.join(shown)})"


@each("name", public_calls())
def test_store_call(name: str):
    section = page("reference/store.md").sections.get(name, "")
    assert section, f"reference/store.md has no section for {name}"
    shown = re.match(r"\s*```text\n(.*?)```", section, re.DOTALL)
    assert shown, "a section begins with the signature"
    call, arrow, _ = " ".join(shown[1].split()).replace("( ", "(").replace(" )", ")").partition(" -> ")
    assert arrow
    assert call == signature(name, public_calls()[name])


def test_store_page_lists_no_other_calls():
    assert set(page("reference/store.md").sections) == set(public_calls())


def memory_calls() -> dict[str, Any]:
    return {name: call for name, call in vars(MemoryStore).items() if not name.startswith("_")}


@each("name", memory_calls())
def test_memory_call(name: str):
    section = page("reference/memory.md").sections[name]
    shown = re.match(r"\s*```text\n(.*?) -> ", section, re.DOTALL)
    assert shown, "a section begins with the signature"
    assert shown[1] == signature(name, memory_calls()[name])


def test_settings():
    rows = {cells[0].strip("`"): cells[1] for cells in page("reference/settings.md").rows()}
    defaults = {name: f"`{vars(conf.Conf)[name]!r}`" for name in conf.known_settings()}
    assert rows == defaults


def test_checks():
    ids = set(re.findall(r"helix_sessions\.[EWI]\d{3}", source()))
    assert {f"helix_sessions.{name}" for name in ("E001", "E006", "W001")} <= ids
    assert set(page("reference/checks.md").first_cells()) == ids
    assert str(checks.MIN_POSTGRESQL // 10000) in page("reference/checks.md").text


def test_errors():
    errors = {
        name: f"`{error.code}`"
        for name, error in vars(exceptions).items()
        if inspect.isclass(error) and issubclass(error, exceptions.HelixSessionsError)
    }
    assert {cells[0].strip("`"): cells[1] for cells in page("reference/errors.md").rows()} == errors


def test_error_codes_are_unique():
    codes = [cells[1] for cells in page("reference/errors.md").rows()]
    assert len(set(codes)) == len(codes)


def test_events():
    appended = set(re.findall(r"\.event\(\s*\"([a-z_]+)\"", source()))
    assert {"session_started", "state_saved", "run_updated"} <= appended
    appended |= {f"{role}_message" for role in types.ROLES}
    assert appended <= set(page("reference/events.md").first_cells())


@each("value", [value for value in vars(types).values() if dataclasses.is_dataclass(value)], ids=str)
def test_values(value: Any):
    section = page("reference/values.md").sections.get(value.__name__, "")
    assert section, f"reference/values.md has no section for {value.__name__}"
    named = set(re.findall(r"`(\w+)`", section))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_step_writes():
    section = page("reference/step-writes.md")
    assert {"set", "append", "insert", "delete", "add", "replace", "remove", "test", "move", "copy"} <= set(
        section.first_cells()
    )


def test_management_commands():
    commands = {
        path.stem
        for path in (PACKAGE / "management" / "commands").glob("*.py")
        if not path.stem.startswith("_")
    }
    assert commands <= set(page("reference/commands.md").first_cells())


def test_querysets():
    named = set(page("reference/querysets.md").first_cells())
    for name in models.__all__:
        queryset = type(getattr(models, name).objects.all())
        offered = {call for call in vars(queryset) if not call.startswith("_")}
        if queryset.__module__.startswith("helix_sessions"):
            assert {f"{name}.objects.{call}" for call in offered} <= named, name
