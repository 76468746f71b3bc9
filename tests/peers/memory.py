"""LangGraph's own tests of its stores, with `DjangoStore` in the place of theirs.

python -m tests.peers.memory CHECKOUT [--engine sqlite|postgresql] [pytest's arguments]

`CHECKOUT` is a working copy of https://github.com/langchain-ai/langgraph. Nothing of it is part of this
project: its test files are copied to a temporary directory, and the functions that make a store replaced.
`tests/peers/memory.md` says what has to be installed, what is left out and why, and what was seen.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.postgres import private_server

FILES = {
    "test_checkpoint.py": "libs/checkpoint/tests/test_store.py",
    "test_sqlite.py": "libs/checkpoint-sqlite/tests/test_store.py",
    "test_sqlite_async.py": "libs/checkpoint-sqlite/tests/test_async_store.py",
    "test_postgres.py": "libs/checkpoint-postgres/tests/test_store.py",
    "test_postgres_async.py": "libs/checkpoint-postgres/tests/test_async_store.py",
}

REPLACED = {
    *("store", "fake_embeddings", "vector_store", "create_vector_store", "_create_vector_store"),
    *("InMemoryStore", "CharacterEmbeddings", "MockAsyncBatchedStore", "conn_string"),
}
"""Names whose definition is ours."""

BASE = "spies on a class of theirs, for methods that are LangGraph's own"
INTERNALS = "about the peer's own tables, functions or migrations"
LEFT_OUT = {
    "test_async_batch_store": "about a base class of LangGraph's; none of our code runs",
    "test_rejects_invalid_namespace_labels": BASE,
    "test_async_rejects_invalid_namespace_labels": BASE,
    "test_sync_methods_reject_invalid_namespace_labels": BASE,
    "test_escape_like_literal": INTERNALS,
    "test_escape_glob_literal": INTERNALS,
    "test_namespace_match_pattern": INTERNALS,
    "test_nonnull_migrations": INTERNALS,
    "test_list_namespaces_prefix_uses_indexable_condition": INTERNALS,
    "test_omit_expired": "changes rows of the peer's table; what has expired is never returned here",
    "test_aomit_expired": "the same",
    "test_no_running_loop": "expects the error of a LangGraph class; here it is Django's",
    "test_abatch_uses_single_pool_checkout": INTERNALS,
    "test_sql_injection_vulnerability": "expects odd keys of a filter to be refused; here they are literal",
    "test_filter_keys_with_hyphens_and_digits": "expects a path in a dotted key; here it is literal, as in"
    " InMemoryStore and PostgresStore",
}
"""Tests that are left out, by the beginning of their names, and why."""

FILLED_UP = "InMemoryStore fills up with memories that are not indexed; the stores with a database do not"

COSINE = "another measure than the cosine is asked for"

CONFTEST = """
import pytest

from tests.peers.memory_stores import *  # noqa: F403
from tests.peers.memory import left_out


def pytest_collection_modifyitems(items):
    for item in items:
        reason = left_out(item.path.name, item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
"""


def left_out(file: str, name: str) -> str | None:
    """Why a test is left out; `None` if it is not."""
    plain, _, row = name.partition("[")
    if (file, plain) == ("test_checkpoint.py", "test_embed_with_path"):
        return FILLED_UP
    if (file, plain) == ("test_sqlite.py", "test_vector_store_initialization"):
        return INTERNALS
    if plain.startswith("test_scores") and ("inner_product" in row or "l2" in row):
        return COSINE
    return next((reason for begin, reason in LEFT_OUT.items() if plain.startswith(begin)), None)


def copied(source: str) -> str:
    """A test file without what is ours, and with the import of that."""
    tree = ast.parse(source)
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in REPLACED:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            continue
        if isinstance(node, ast.ImportFrom):
            node.names = [alias for alias in node.names if alias.name not in REPLACED]
            if not node.names:
                continue
        body.append(node)
    is_async = "AsyncPostgresStore" in source or "AsyncSqliteStore" in source
    ours = ast.parse(f"from tests.peers.memory_stores import {'a' if is_async else ''}stores as ours")
    unpacked = ast.parse(
        "globals().update({name: getattr(ours, name) for name in dir(ours) if not name.startswith('__')})"
    )
    first = next(
        place
        for place, node in enumerate(body)
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        and not (isinstance(node, ast.Expr) and place == 0)
    )
    tree.body = [*body[:first], *ours.body, *unpacked.body, *body[first:]]
    return ast.unparse(ast.fix_missing_locations(tree))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--engine", choices=("sqlite", "postgresql"), default="sqlite")
    chosen, arguments = parser.parse_known_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, path in FILES.items():
            (directory / name).write_text(copied((chosen.checkout / path).read_text()))
        (directory / "conftest.py").write_text(CONFTEST)
        url = ""
        if chosen.engine == "postgresql":
            url = os.environ.get("DATABASE_URL") or stack.enter_context(private_server()).url
        environment = {
            **os.environ,
            "DATABASE_URL": url or f"sqlite:///{directory / 'memories.sqlite3'}",
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent),
        }
        options = ["-p", "no:django", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
        options += ["--rootdir", str(directory)]
        command = [sys.executable, "-m", "pytest", "-c", "/dev/null", *options, directory, *arguments]
        return subprocess.run([str(part) for part in command], env=environment, cwd=directory).returncode


if __name__ == "__main__":
    sys.exit(main())
