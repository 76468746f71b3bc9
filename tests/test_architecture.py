"""The rooms: front ends know the store, the store knows the models, never the other way round."""

import ast
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tests.rows import each

PACKAGE = Path(__file__).resolve().parent.parent / "helix_sessions"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)

DOORS = ("api", "admin", "templatetags", "management", "integrations", "urls", "health", "metrics")
DRIVERS = ("agents", "runtime", "stream", "tasks")
MANNERS = (
    *("apps", "checks", "conf", "deploy_checks", "exceptions"),
    *("logs", "setting_checks", "signals", "types"),
)

MAY_KNOW = {
    "exceptions": (),
    "values": ("exceptions",),
    "types": ("values",),
    "conf": (),
    "egress": ("exceptions",),
    "cron": ("exceptions",),
    "logs": (),
    "signals": (),
    "content": ("conf", "exceptions"),
    "messages": ("types",),
    "transcripts": ("messages",),
    "writes": ("exceptions",),
    "models": ("content", "cron", "exceptions", "types"),
    "checks": ("conf", "content", "exceptions", "models", "store"),
    "setting_checks": ("conf", "exceptions", "runtime", "types", "values"),
    "deploy_checks": ("conf",),
    "apps": ("checks", "deploy_checks", "setting_checks"),
    "workspaces": ("conf", "content", "exceptions"),
    "store": (
        *("conf", "content", "cron", "egress", "exceptions", "messages", "models", "signals", "stream"),
        *("types", "values", "workspaces", "writes"),
    ),
    "memory": ("store", "types"),
}
"""What each room may import of the others. Doors and drivers may know all but each other's insides."""

WITHOUT_DJANGO = ("values", "messages", "writes", "transcripts", "exceptions", "types")

STORE_ROOMS = (
    *("engine", "transcript", "state", "runs", "calls", "inbox", "limits"),
    *("context", "keyed", "memory", "outbox", "sessions", "schedules", "agents", "driving", "maintenance"),
)
"""Each knows those before it."""

GENERATED = (PACKAGE / "store" / "aio.py", PACKAGE / "memory" / "aio.py")


def room(path: Path) -> str:
    """The first part of a file's place: `store`, `models`, `types` …"""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The dotted names a file imports, those inside functions included, those for type checking not."""
    return imports_in(path.read_text())


def imports_in(source: str) -> Iterator[str]:
    tree = ast.parse(source)
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
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
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
    elif here == "agents":  # a framework's agent and its adapter read the same messages
        assert rooms_known(path) & set(DOORS) <= {"integrations"}
    elif here in DRIVERS:
        assert rooms_known(path).isdisjoint(DOORS)


@each("path", FILES, ids=named)
def test_every_file_is_in_a_known_room(path: Path) -> None:
    assert room(path) in {*MAY_KNOW, *DOORS, *DRIVERS, *MANNERS, "__init__"}


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


# The six rules of docs/explanation/layout.md. Each is one test, and another shows that it can fail.

# 1. Imports inside `store/` follow the order of its rooms.


def upward_imports(room_of_store: str, source: str) -> list[str]:
    """What a file of a room of the store imports of rooms that come after it."""
    may_know = STORE_ROOMS[: STORE_ROOMS.index(room_of_store) + 1]
    ours = (name for name in imports_in(source) if name.startswith("helix_sessions.store."))
    return [name for name in ours if name.split(".")[2] not in may_know]


def test_imports_inside_the_store_go_down() -> None:
    rooms = [(path, path.relative_to(PACKAGE / "store").parts) for path in FILES if room(path) == "store"]
    upwards = {
        named(path): found
        for path, parts in rooms
        if len(parts) > 1 and (found := upward_imports(parts[0], path.read_text()))
    }
    assert upwards == {}


def test_an_import_that_goes_up_is_seen() -> None:
    for source in (
        "from helix_sessions.store.inbox import inbox",
        "import helix_sessions.store.sessions.create",
        "def later():\n    from helix_sessions.store.inbox.inbox import admit",
        "from helix_sessions.store.session_store import SessionStore",
    ):
        assert upward_imports("calls", source), source
    for source in (
        "from helix_sessions.store.engine import inputs",
        "from helix_sessions.store.calls import suspend",
        "if TYPE_CHECKING:\n    from helix_sessions.store.inbox import inbox",
    ):
        assert not upward_imports("calls", source), source


def test_the_pages_have_the_order_of_the_rooms() -> None:
    pages = {"docs/explanation/layout.md": " ◀ ", "CONTRIBUTING.md": " < "}
    for name, arrow in pages.items():
        assert arrow.join((*STORE_ROOMS, "session_store")) in (PACKAGE.parent / name).read_text(), name
    layout = (PACKAGE.parent / "docs/explanation/layout.md").read_text()
    rooms = [path.name for path in (PACKAGE / "store").iterdir() if (path / "__init__.py").exists()]
    assert sorted(rooms) == sorted(STORE_ROOMS)
    assert [name for name in rooms if f"| `{name}/` |" not in layout] == []
    tested = layout.partition("## Where a promise is tested")[2].partition("\n## ")[0]
    folders = [path.name for path in (PACKAGE.parent / "tests").iterdir() if any(path.glob("*.py"))]
    assert [name for name in folders if f"`{name}/`" not in tested] == []
    firsts = re.findall(r"^\| (`.+?`) \|", tested, re.MULTILINE)
    named = [name for cell in firsts for name in re.findall(r"`(\w+)/`", cell)]
    assert sorted(named) == sorted(set(named)), "a folder has one row"
    places = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__")}
    parts = {
        f"`{name}`" if name.endswith(".py") else f"`{name}/`" for name in places - {"py.typed", "migrations"}
    }
    assert {part for part in parts - {"`apps.py`"} if part not in layout} == set(), "where does it belong?"


# 2. Only the engine and files called `sql.py` know which database it is, or hold SQL.

KNOWS_THE_DATABASE = {
    "models/fields.py": "a field says its own column type, and a lookup its own condition",
    "models/guard.py": "the triggers of the log",
    "models/memory_words.py": "the full-text index of memories",
    "models/transcript_words.py": "the full-text index of transcripts",
    "store/maintenance/invariants.py": "every invariant is a query",
    "store/maintenance/context_invariants.py": "every invariant is a query",
    "store/memory/databases.py": "each database finds words, filters and compares vectors in its own way",
}
"""What else may know which database it is, or write SQL. (Migrations may, too.)"""

_STATEMENT = re.compile(
    r"\b(SELECT|INSERT INTO|DELETE FROM|UPDATE \S+ SET|ON CONFLICT|TRUNCATE TABLE) "
    r"|\b(SELECT|INSERT INTO|DELETE FROM|UPDATE)\s*$"
    r"|^(UPDATE|PRAGMA|(UN)?LISTEN) (?!is )|\bWHERE\s|\bset_config\(|\bpg_\w+\("
    r"|::(text|bigint|json|regclass)\b"
    r'|" (=|<|>|<=|>=|<>|IS|IN) '
)


def texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a file, but for those that stand by themselves, which are its prose."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


def sql_in(source: str) -> set[str]:
    """What in a file is SQL, or asks which database it is."""
    tree = ast.parse(source)
    asked = {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "vendor"
    }
    return asked | {text for text in texts(tree) if _STATEMENT.search(text)}


def test_only_the_engine_knows_the_database_and_sql_is_in_files_of_its_name() -> None:
    elsewhere = [
        path for path in FILES if path.name != "sql.py" and not named(path).startswith("store/engine/")
    ]
    found = {named(path): sql for path in elsewhere if (sql := sql_in(path.read_text()))}
    assert {name: sql for name, sql in found.items() if name not in KNOWS_THE_DATABASE} == {}
    assert set(KNOWS_THE_DATABASE) <= set(found), "an exception that is none any more"


def test_sql_is_seen_wherever_it_is() -> None:
    for source in (
        "if connection.vendor == 'sqlite': pass",
        "query = 'SELECT 1'",
        "query = f'SELECT {columns} FROM {table}'",
        "execute(connection, f'DELETE FROM {table} WHERE x = %s', [1])",
        "execute(connection, f'UPDATE {table} SET a = 1', [])",
        "_NOTIFY = b'SELECT pg_notify($1, $2)'",
        "work.delete(Note, '\"number\" = %s', [1])",
        "cast = '::text'",
        "cursor.execute('PRAGMA synchronous')",
        "connection.execute(f'LISTEN {channel}')",
    ):
        assert sql_in(source), source
    for source in (
        '"""SELECT is a word."""',
        'x: int = 1\n"""Where it is: WHERE it was."""',
        "work.delete(Note, ('number', '=', 1))",
        "raise InvalidInput('Select a session, or update it.')",
    ):
        assert not sql_in(source), source


# 3. Only `store/` opens transactions.

TRANSACTIONS = {
    *("atomic", "set_autocommit", "savepoint", "savepoint_commit"),
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
    f"helix_sessions.store.engine.connection.{name}"
    for name in ("after_commit", "let_go_if_broken", "outage")
}
"""All that a front end may know of how the store writes."""

_SQL = re.compile(
    r"^\s*(BEGIN|START TRANSACTION|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|LOCK TABLE)\b"
    r"|\bFOR (NO KEY )?UPDATE\b|\bpg_(try_)?advisory"
)


def transactions_in(source: str) -> set[str]:
    """What in a file opens a transaction or takes a lock, in Python and in SQL."""
    tree = ast.parse(source)
    found = {match[0].strip() for text in texts(tree) if (match := _SQL.search(text))}
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
    return found


def test_only_the_store_opens_transactions_and_locks() -> None:
    outside = [path for path in FILES if room(path) != "store"]
    opened = {named(path): names for path in outside if (names := transactions_in(path.read_text()))}
    assert opened == {}


def test_a_transaction_is_seen_by_whatever_name() -> None:
    for source in (
        "with transaction.atomic(): pass",
        "from django.db.transaction import atomic as together",
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


# 4. Pure functions know no Django.


def django_in(source: str) -> list[str]:
    return [name for name in imports_in(source) if name.partition(".")[0] in ("django", "psycopg")]


def test_pure_functions_know_no_django() -> None:
    pure = [path for path in FILES if room(path) in WITHOUT_DJANGO]
    assert {named(path): found for path in pure if (found := django_in(path.read_text()))} == {}
    assert {"values", "messages", "writes"} <= set(map(room, pure))


def test_django_is_seen_wherever_it_is_imported() -> None:
    for source in ("from django.utils import timezone", "import django", "def f():\n    import psycopg.pq"):
        assert django_in(source), source
    assert not django_in("from helix_sessions.content import documents\nimport json")


# 5. Files are small, none is a crumb, and no name is twice in a room.

LARGEST = 400
SMALLEST = 30
SMALL_AND_ALONE = {
    "models/": "one aggregate per file",
    "management/commands/": "one command per file",
    "runtime/actions/": "one noun of actions per file",
    "runtime/sources/": "one kind of source per file",
    "api/serializers/": "one noun per file, as the views have it",
    "apps.py": "Django looks for it",
    "transcripts.py": "public names",
    "api/pagination.py": "what every list of the API shares",
    "content/storages.py": "below the store, which archives and workspaces share",
    "memory/memory_store.py": "the table of operations, as `store/session_store.py` is",
    "store/maintenance/context_invariants.py": "the other file of invariants is full",
    "store/state/shared_states.py": "an operation of its own",
    "stream/threads.py": "tails and feeds need it",
    "values/memories.py": "one noun per file",
    "workspaces/base.py": "the protocol that providers implement",
}
"""Files of fewer lines that are no paragraph of a neighbour, and why. A `sql.py` needs no reason."""


def place(name: str) -> tuple[str, ...]:
    """The room of a file: a package, or a room of the store. The layers of the API name the same nouns."""
    parts = Path(name).parts[:-1]
    return parts if parts[:1] == ("api",) else parts[: 2 if parts[:1] == ("store",) else 1]


def misfits(lengths: Mapping[str, int], alone: Collection[str]) -> set[str]:
    """The files that are too long, too short to stand alone, or named as another one of their room."""
    names = Counter((place(name), Path(name).stem) for name in lengths)
    small = {name for name, length in lengths.items() if length < SMALLEST and not name.endswith("sql.py")}
    return {
        *(name for name, length in lengths.items() if length > LARGEST),
        *(name for name in small if not name.startswith(tuple(alone))),
        *(name for name in lengths if names[place(name), Path(name).stem] > 1),
    }


def test_files_are_small_and_not_crumbs_and_no_name_is_twice_in_a_room() -> None:
    files = [path for path in FILES if path not in GENERATED and path.name != "__init__.py"]
    lengths = {named(path): len(path.read_text().splitlines()) for path in files}
    assert misfits(lengths, SMALL_AND_ALONE) == set()
    assert statistics.median(lengths.values()) <= 120
    small = [name for name, length in lengths.items() if length < SMALLEST]
    unneeded = {each for each in SMALL_AND_ALONE if not any(name.startswith(each) for name in small)}
    assert unneeded == set(), "an exception that is none any more"


def test_a_file_that_does_not_fit_is_seen() -> None:
    whole = {
        "store/inbox/inbox.py": 400,
        "store/inbox/sql.py": 5,
        "models/notes.py": 5,
        "api/views/inbox.py": 50,
    }
    assert misfits(whole, ["models/"]) == set()
    for name, length in {
        "store/inbox/long.py": 401,
        "store/inbox/crumb.py": 29,
        "store/inbox/deeper/inbox.py": 50,
    }.items():
        assert name in misfits({**whole, name: length}, ["models/"]), name


# 6. Every public operation is one line of the table and one section of the reference.


def undocumented(operations: Iterable[str], reference: str) -> set[str]:
    return {name for name in operations if f"### `{name}`" not in reference}


def test_every_operation_is_a_line_of_the_table_and_a_section_of_the_reference() -> None:
    from helix_sessions.store import SessionStore

    reference = (PACKAGE.parent / "docs" / "reference" / "store.md").read_text()
    operations = {name for name in vars(SessionStore) if not name.startswith("_")}
    assert undocumented(operations, reference) == set()
    assert undocumented({"rename"}, reference) == {"rename"}
    assert operations == {name for name in dir(SessionStore) if not name.startswith("_")}
    table = (PACKAGE / "store" / "session_store.py").read_text()
    assert {name for name in operations if len(re.findall(rf"^    {name} = ", table, re.M)) != 1} == set()
