"""The rooms of the house: doors know the store, the store knows the models, and not the other way round."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.rows import each

PACKAGE = Path(__file__).resolve().parent.parent / "helix_sessions"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)

DOORS = ("api", "admin", "templatetags", "management", "integrations", "urls", "health", "metrics")
DRIVERS = ("runtime", "stream", "tasks")
MANNERS = ("apps", "checks", "conf", "exceptions", "logs", "signals", "types")

MAY_KNOW = {
    "exceptions": (),
    "values": ("exceptions",),
    "types": ("values",),
    "conf": (),
    "logs": (),
    "signals": (),
    "content": ("conf", "exceptions"),
    "transcripts": (),
    "messages": ("transcripts", "types"),
    "writes": ("exceptions",),
    "models": ("content", "types"),
    "checks": ("conf", "content", "exceptions", "models"),
    "apps": ("checks",),
    "workspaces": ("conf", "content", "exceptions"),
    "store": (
        *("conf", "content", "exceptions", "messages", "models", "signals", "stream", "transcripts"),
        *("types", "values", "workspaces", "writes"),
    ),
}
"""What each room may import of the others. Doors and drivers may know all but each other's insides."""

WITHOUT_DJANGO = ("values", "messages", "writes", "transcripts", "exceptions", "types")

STORE_ROOMS = (
    *("engine", "transcript", "state", "runs", "calls", "inbox"),
    *("context", "keyed", "sessions", "agents", "maintenance"),
)
"""Each knows those before it."""

GENERATED = PACKAGE / "store" / "aio.py"


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


TRANSACTIONS = {
    *("atomic", "non_atomic_requests", "set_autocommit", "savepoint", "savepoint_commit"),
    *("select_for_update", "transaction_on", "locking_transaction", "write_tree", "lock_row"),
}
"""What opens a transaction, or takes a lock in one, by whichever way it is reached."""

WAYS_TO_WRITE = {"_write", "_decide"}
"""A store's own."""

ENGINE = tuple(
    f"helix_sessions.store.engine.{name}" for name in ("unit_of_work", "transactions", "connection")
)
PLACES = tuple(name.removeprefix("helix_sessions.") for name in ENGINE)
OF_THE_ENGINE = {
    f"helix_sessions.store.engine.connection.{name}" for name in ("after_commit", "let_go_if_broken")
}
"""All that a door may know of how the store writes."""

_SQL = re.compile(
    r"^\s*(BEGIN|START TRANSACTION|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|LOCK TABLE)\b"
    r"|\bFOR (NO KEY )?UPDATE\b|\bpg_(try_)?advisory"
)


def transactions_in(source: str) -> set[str]:
    """What in a file opens a transaction or takes a lock, in Python and in SQL."""
    tree = ast.parse(source)
    found: set[str] = set()
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            found |= {node.attr} & (TRANSACTIONS if own else TRANSACTIONS | WAYS_TO_WRITE)
            found |= {ast.unparse(node)} if ast.unparse(node).endswith(PLACES) else set()
        elif isinstance(node, ast.Name):
            found |= {node.id} & TRANSACTIONS
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{module}{each.name}" for each in node.names):
                engine = name.startswith(ENGINE) and name not in OF_THE_ENGINE
                found |= {name} if engine or name.rpartition(".")[2] in TRANSACTIONS else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found |= {match[0].strip()} if (match := _SQL.search(node.value)) else set()
    return found


def test_only_the_store_opens_transactions_and_locks() -> None:
    outside = [path for path in FILES if room(path) != "store"]
    opened = {named(path): names for path in outside if (names := transactions_in(path.read_text()))}
    assert opened == {}


def test_a_transaction_is_seen_by_whatever_name() -> None:
    for source in (
        "with transaction.atomic(): pass",
        "from django.db.transaction import atomic as together",
        "@transaction.non_atomic_requests\ndef view(request): pass",
        "connection.set_autocommit(False)",
        "rows.select_for_update().get()",
        "from helix_sessions.store.engine.connection import transaction_on as at_once",
        "from helix_sessions.store.engine.transactions import write",
        "from helix_sessions.store.engine import unit_of_work",
        "import helix_sessions.store.engine.unit_of_work as u",
        "import helix_sessions.store.engine.connection",
        "from helix_sessions import store\nwith store.engine.transactions.write('default', 's'): pass",
        "with locking_transaction('default'): pass",
        "with tree.write_tree('default') as tree: pass",
        "with store._write('s') as work: pass",
        "store._decide('s', decision)",
        "cursor.execute('BEGIN IMMEDIATE')",
        "cursor.execute('  SAVEPOINT a')",
        "cursor.execute(f'SELECT 1 FROM {table} WHERE x FOR UPDATE')",
        "cursor.execute('SELECT pg_advisory_xact_lock(1)')",
    ):
        assert transactions_in(source), source
    for source in (
        '"""BEGIN: here a transaction begins."""',
        "from helix_sessions.store.engine.connection import let_go_if_broken",
        "documents.write({})\nconnection.in_atomic_block\ntransaction.on_commit(tell)",
    ):
        assert not transactions_in(source), source


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


def test_files_stay_small() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in FILES if path != GENERATED}
    assert statistics.median(lengths.values()) <= 120
    assert {name for name, length in lengths.items() if length > 400} == set()


def test_imports_inside_the_store_go_down() -> None:
    upwards = []
    for path in FILES:
        place = path.relative_to(PACKAGE).parts
        if place[0] == "store" and len(place) > 2:
            ours = (name for name in imports(path) if name.startswith("helix_sessions.store."))
            for name in ours:
                known = name.split(".")[1:]
                if known[1] != place[1]:
                    below = STORE_ROOMS[: STORE_ROOMS.index(place[1])]
                    upwards += [f"{named(path)} -> {name}"] if known[1] not in below else []
    assert upwards == []


def test_every_operation_is_a_line_of_the_table_and_a_section_of_the_reference() -> None:
    from helix_sessions.store import SessionStore

    reference = (PACKAGE.parent / "docs" / "reference" / "store.md").read_text()
    operations = {name for name in vars(SessionStore) if not name.startswith("_")}
    assert {name for name in operations if f"### `{name}`" not in reference} == set()
    assert operations == {name for name in dir(SessionStore) if not name.startswith("_")}
