"""Writes the type stub of `AsyncSessionStore`, whose methods are made from those of `SessionStore`.

python -m tools.async_stub          rewrite helix_sessions/store/aio.pyi
python -m tools.async_stub --check  fail if it is not up to date
"""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

STUB = Path(__file__).resolve().parent.parent / "helix_sessions" / "store" / "aio.pyi"
HEADER = """\"\"\"Made by `python -m tools.async_stub` from the signatures of `SessionStore`.\"\"\"

"""
Method: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

CLASS = """class AsyncSessionStore:
    def __init__(self, using: str = ..., *, owned_by: Any = ...) -> None: ...
"""

FENCED = """
class AsyncFencedStore(AsyncSessionStore):
    def __await__(self) -> Generator[None, None, AsyncFencedStore]: ...
"""


def stub() -> str:
    """The stub's text: what the async store defines itself, then the store's methods, awaitable."""
    from helix_sessions.store import aio
    from helix_sessions.store.session_store import SessionStore

    # Read as source, because a class that is imported has lost the form of its annotations.
    classes = [
        (aio.__name__, "AsyncSessionStore"),
        *((c.__module__, c.__name__) for c in SessionStore.__mro__[:-1]),
    ]
    methods: dict[str, str] = {}
    imports = {"from collections.abc import Generator"}
    for module_name, class_name in classes:
        module = sys.modules[module_name]
        tree = ast.parse(inspect.getsource(module))
        known = _importable(module, tree)
        for name, declared in _public_methods(tree, class_name).items():
            if name not in methods:
                methods[name] = "\n".join(
                    _declaration(each, made_async=module is not aio) for each in declared
                )
                used = set().union(*map(_names, declared))
                imports.update(known[name] for name in used if name in known)
    body = "\n".join(f"    {line}" for text in methods.values() for line in text.splitlines())
    return _formatted(HEADER + "\n".join(sorted(imports)) + "\n\n" + CLASS + body + "\n" + FENCED)


def _public_methods(tree: ast.Module, class_name: str) -> dict[str, list[Method]]:
    """Each method's definition, or its overloads."""
    found: dict[str, list[Method]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for member in node.body:
                if isinstance(member, Method) and not member.name.startswith("_"):
                    found.setdefault(member.name, []).append(member)
    return {name: [each for each in some if _is_overload(each)] or some[:1] for name, some in found.items()}


def _is_overload(method: Method) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in method.decorator_list)


def _names(method: Method) -> set[str]:
    """The names a method's annotations and decorators use."""
    annotations = [node.annotation for node in ast.walk(method.args) if isinstance(node, ast.arg)]
    return {
        node.id
        for annotation in (*annotations, method.returns, *method.decorator_list)
        if annotation is not None
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name)
    }


def _declaration(method: Method, *, made_async: bool) -> str:
    arguments = method.args
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(...) for default in arguments.kw_defaults]
    decorators = [ast.unparse(decorator) for decorator in method.decorator_list]
    made_async = made_async and "staticmethod" not in decorators
    keyword = "async def" if made_async or isinstance(method, ast.AsyncFunctionDef) else "def"
    returns = ast.unparse(method.returns).strip("'") if method.returns else "None"  # a stub needs no quotes
    signature = f"{keyword} {method.name}({ast.unparse(arguments)}) -> {returns}: ..."
    return "\n".join([*(f"@{decorator}" for decorator in decorators), signature])


def _importable(module: ModuleType, tree: ast.Module) -> dict[str, str]:
    """Each name the module knows, with the statement that imports it elsewhere."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                rename = f" as {alias.asname}" if alias.asname else ""
                found[alias.asname or alias.name] = f"from {node.module} import {alias.name}{rename}"
        elif isinstance(node, ast.ClassDef):
            found[node.name] = f"from {module.__name__} import {node.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = f"from {module.__name__} import {target.id}"
    return found


def _formatted(text: str) -> str:
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    import django

    django.setup()
    if "--check" not in sys.argv:
        STUB.write_text(stub())
    elif STUB.read_text() != stub():
        sys.exit("helix_sessions/store/aio.pyi is out of date: run python -m tools.async_stub")


if __name__ == "__main__":
    main()
