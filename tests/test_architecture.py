"""The rooms of the house: doors know the store, the store knows the models, and not the other way round."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.rows import each

PACKAGE = Path(__file__).resolve().parent.parent / "helix_sessions"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)

DOORS = ("api", "admin", "templatetags", "management", "integrations", "urls", "health", "metrics")
DRIVERS = ("runtime", "stream", "tasks")
MANNERS = ("apps", "checks", "conf", "documents", "encryption", "exceptions", "logs", "signals", "types")

MAY_KNOW = {
    "exceptions": (),
    "agents": ("exceptions",),
    "types": ("agents", "exceptions"),
    "conf": (),
    "logs": (),
    "signals": (),
    "encryption": ("conf", "exceptions"),
    "documents": ("conf", "encryption", "exceptions"),
    "transcripts": (),
    "projection": ("transcripts", "types"),
    "recovery": ("projection", "transcripts"),
    "writes": ("exceptions",),
    "usage": (),
    "models": ("documents", "encryption", "types"),
    "checks": ("conf", "encryption", "exceptions", "models"),
    "apps": ("checks",),
    "storages": ("exceptions",),
    "workspaces": ("conf", "exceptions", "storages"),
    "store": (
        *("agents", "conf", "documents", "encryption", "exceptions", "models", "projection", "recovery"),
        *("signals", "storages", "stream", "transcripts", "types", "workspaces", "writes"),
    ),
}
"""What each room may import of the others. Doors and drivers may know all but each other's insides."""

WITHOUT_DJANGO = ("agents", "writes", "projection", "recovery", "transcripts", "usage", "exceptions", "types")


def room(path: Path) -> str:
    """The first part of a file's place: `store`, `models`, `types` …"""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The dotted names a file imports, those inside functions included, those for type checking not."""
    tree = ast.parse(path.read_text())
    for_typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in for_typing:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def rooms_known(path: Path) -> set[str]:
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("helix_sessions.")}
    return ours - {room(path), "__version__"}


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@each("path", FILES, ids=named)
def test_dependencies_point_from_doors_to_store_to_models(path: Path) -> None:
    here = room(path)
    if here in MAY_KNOW:
        assert rooms_known(path) <= set(MAY_KNOW[here])
    elif here in DRIVERS:
        assert rooms_known(path).isdisjoint(DOORS)


@each("path", FILES, ids=named)
def test_every_file_is_in_a_known_room(path: Path) -> None:
    assert room(path) in {*MAY_KNOW, *DOORS, *DRIVERS, *MANNERS, "__init__"}


@each("path", [path for path in FILES if room(path) in WITHOUT_DJANGO], ids=named)
def test_pure_functions_know_no_django(path: Path) -> None:
    assert [name for name in imports(path) if name.partition(".")[0] in ("django", "psycopg")] == []


@each("path", [path for path in FILES if room(path) != "store"], ids=named)
def test_only_the_store_opens_transactions_and_locks(path: Path) -> None:
    tree = ast.parse(path.read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert used.isdisjoint({"atomic", "select_for_update", "non_atomic_requests", "set_autocommit"})


@each("path", [path for path in FILES if room(path) == "models"], ids=named)
def test_models_have_no_behaviour(path: Path) -> None:
    tree = ast.parse(path.read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = {node.name for kind in classes for node in kind.body if isinstance(node, ast.FunctionDef)}
    assert methods.isdisjoint({"save", "delete", "clean", "full_clean", "refresh_from_db"})
    assert not any("signals" in name for name in imports(path))


@each("path", FILES, ids=named)
def test_no_drawer_for_everything(path: Path) -> None:
    assert path.stem not in {"utils", "helpers", "common", "misc", "util"}


STILL_LARGE = {"store/sessions.py", "store/unit.py", "types.py"}
"""The files above 400 lines that are still to be divided. No other may become one."""


def test_files_stay_small() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in FILES}
    assert statistics.median(lengths.values()) <= 120
    assert {name for name, length in lengths.items() if length > 400} <= STILL_LARGE
