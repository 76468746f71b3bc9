"""Runs the Python of a page and holds it to what it says of itself.

`expression  # => value` must be equal to that value; `statement  # raises Name` must raise it.
"""

import ast
import io
import re
import tokenize
from typing import Any

from tests.docs.pages import Block

_PROMISE = re.compile(r"#\s*(?:=>\s*(?P<value>.+)|raises\s+(?P<error>\w+))\s*$")


class BrokenPromise(AssertionError):
    """A block did something else than its comment says."""


def run(block: Block, namespace: dict[str, Any], *, file: str) -> None:
    """Execute the statements of a block one by one, checking each promise."""
    source = "\n" * (block.line - 1) + block.code  # so that tracebacks name the line of the page
    promises = _promises(source)
    for statement in ast.parse(source, file).body:
        promise = promises.pop(statement.end_lineno or 0, None)
        where = f"{file}:{statement.lineno}"
        if promise is None:
            _execute(statement, namespace, file)
        elif promise["error"]:
            _expect_error(statement, namespace, file, promise["error"], where)
        elif not isinstance(statement, ast.Expr):
            raise BrokenPromise(f"{where}: only an expression has a value.")
        else:
            found = eval(compile(ast.Expression(statement.value), file, "eval"), namespace)
            expected = eval(promise["value"], namespace)
            if type(found) is not type(expected) or found != expected:
                raise BrokenPromise(f"{where}: {found!r} is not {promise['value']}")
    if promises:
        raise BrokenPromise(f"{file}:{min(promises)}: this comment is not at the end of a statement.")


def _execute(statement: ast.stmt, namespace: dict[str, Any], file: str) -> None:
    exec(compile(ast.Module([statement], []), file, "exec"), namespace)


def _expect_error(statement: ast.stmt, namespace: dict[str, Any], file: str, name: str, where: str) -> None:
    try:
        _execute(statement, namespace, file)
    except Exception as error:
        if type(error).__name__ != name:
            raise BrokenPromise(f"{where}: raised {type(error).__name__}, not {name}.") from error
    else:
        raise BrokenPromise(f"{where}: did not raise {name}.")


def _promises(source: str) -> dict[int, re.Match[str]]:
    """The promises by the line they stand on."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (promise := _PROMISE.match(token.string)):
            found[token.start[0]] = promise
    return found
