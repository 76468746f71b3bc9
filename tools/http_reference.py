"""Writes the page of the HTTP bodies: each method of each address with its parameters, examples of what is
sent and answered, and the fields of every object.

python -m tools.http_reference          rewrite docs/reference/http-bodies.md
python -m tools.http_reference --check  fail if it is not up to date
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "http-bodies.md"

COMMAND = "python -m tools.http_reference"

HEADER = f"""# HTTP bodies

Each method of each address with what it takes and what it answers, and at the end the fields of every
[object](#objects). [HTTP](http.md) has the table of addresses, permissions, versions, pages and problems:
what all methods share is there and not repeated here. `{{s}}` is `sessions/{{session_id}}`. The names in
brackets are the verbs that a [policy](http.md#permissions) is asked about.

`{COMMAND}` writes this page from the OpenAPI schema.
"""

OBJECTS = """
## Objects

A required field must be in a request, and always is in an answer. An unknown key in a request is 400.
"""

BARE = "An object without unknown keys."
"""What serializers inherit for a description."""

METHODS = ("get", "post", "put", "patch", "delete")


def schema() -> Schema:
    """The OpenAPI document of the API."""
    from drf_spectacular.generators import SchemaGenerator

    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    found: Schema = generator.get_schema(request=None, public=True)
    return found


def operations(document: Schema) -> list[tuple[str, str, Schema]]:
    """(method, address below the API, operation), by tag, in the order of `urls.py`."""
    from django.urls import reverse

    root = reverse("helix_sessions:root")
    order = {f"{address}/": number for number, address in enumerate(_addresses())}
    found = []
    for path, methods in document["paths"].items():
        address = path.removeprefix(root)
        for method in METHODS:
            if method in methods:
                found.append((method.upper(), address, methods[method]))
    found.sort(key=lambda each: (order.get(each[1], -1), METHODS.index(each[0].lower())))
    tags = list(dict.fromkeys(operation["tags"][0] for _, _, operation in found))
    return sorted(found, key=lambda each: tags.index(each[2]["tags"][0]))


def _addresses() -> list[str]:
    from helix_sessions.api.urls import PUBLIC_ROUTES, ROUTES, STREAM

    routes = [route for route, _, _ in ROUTES + PUBLIC_ROUTES]
    after = next(place for place, (_, _, name) in enumerate(ROUTES, 1) if name == "event-projection")
    routes.insert(after, STREAM)
    return [re.sub(r"<\w+:(\w+)>", r"{\1}", route) for route in routes]


def missing(document: Schema) -> list[str]:
    """What the schema lacks for a complete page, as sentences that say what to do."""
    described = {address for _, address, _ in operations(document)}
    found = [
        f"The address {address}/ is not in the schema: give its methods `@operation(…)`."
        for address in _addresses()
        if f"{address}/" not in described
    ]
    for method, address, operation in operations(document):
        for what, body in _bodies(operation):
            if not _is_raw(body) and not body.get("examples"):
                parameter = "sent" if what == "request" else "example"
                found.append(
                    f"{method} {address} has no example of its {what}: give `operation("
                    f'"{operation["operationId"]}", {parameter}=…)` one of `api/examples.py`.'
                )
    return [f"{sentence} Then run `{COMMAND}`." for sentence in found]


def _bodies(operation: Schema) -> Iterator[tuple[str, Schema]]:
    for body in operation.get("requestBody", {}).get("content", {}).values():
        yield "request", body
    for status, answer in _answers(operation):
        for body in answer.get("content", {}).values():
            yield f"answer {status}", body


def _answers(operation: Schema) -> list[tuple[str, Schema]]:
    return sorted(each for each in operation["responses"].items() if each[0].startswith("2"))


def _is_raw(body: Schema) -> bool:
    """Bytes, or a stream of text, as against JSON."""
    return body["schema"] in ({"type": "string", "format": "binary"}, {"type": "string"})


def text(document: Schema) -> str:
    """The page."""
    parts = [HEADER]
    for method, address, operation in operations(document):
        heading = f"\n## {operation['tags'][0].replace('-', ' ').capitalize()}\n"
        if heading not in parts:
            parts.append(heading)
        parts.extend(_operation(method, address.replace("sessions/{session_id}", "{s}"), operation))
    parts.append(OBJECTS)
    for name, kind in sorted(document["components"]["schemas"].items()):
        parts.extend(_object(name, kind))
    return "".join(parts)


def _operation(method: str, address: str, operation: Schema) -> Iterator[str]:
    yield f"\n### `{method} {address or '/'}`\n"
    yield f"\n{operation['description'].strip()} (`{operation['operationId']}`)\n"
    parameters = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    if parameters:
        yield "\n| query | type | |\n|---|---|---|\n"
        for each in parameters:
            yield _row(each["name"], each["schema"], each.get("description", ""), each.get("required"))
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        yield from _body(f"Takes `{media_type}`", body)
    for status, answer in _answers(operation):
        if not answer.get("content"):
            yield f"\nAnswers {status} without a body.\n"
        for media_type, body in answer.get("content", {}).items():
            yield from _body(f"Answers {status} `{media_type}`", body)


def _body(title: str, body: Schema) -> Iterator[str]:
    if _is_raw(body):
        what = "server-sent events" if "event-stream" in title else "the content itself"
        examples = body.get("examples", {}).values()
        yield f"\n{title}: {what}.\n"
        for example in examples:
            yield f"\n```text\n{example['value']}```\n"
        return
    yield f"\n{title}, {_type(body['schema'])}:\n"
    for example in body.get("examples", {}).values():
        yield f"\n```json\n{json.dumps(example['value'], indent=2, ensure_ascii=False)}\n```\n"


def _object(name: str, kind: Schema) -> Iterator[str]:
    yield f"\n### {name}\n"
    if "enum" in kind:
        yield f"\nOne of {_type(kind)}.\n"
        return
    if kind.get("description", BARE) != BARE:
        yield f"\n{_line(kind['description'])}\n"
    if "properties" not in kind:
        yield f"\n{_type(kind)}\n"
        return
    yield "\n| field | type | |\n|---|---|---|\n"
    for field, value in kind["properties"].items():
        yield _row(field, value, value.get("description", ""), field in kind.get("required", ()))


def _row(name: str, kind: Schema, description: str, required: bool | None) -> str:
    said = " ".join(part for part in ("Required." if required else "", _line(description)) if part)
    return f"| `{name}` | {_type(kind)} | {said} |\n"


def _line(words: str) -> str:
    """A description in one line, fit for the cell of a table."""
    return " ".join(words.split()).replace("|", "\\|")


def _type(kind: Any) -> str:
    """What a schema allows, in words."""
    if not isinstance(kind, dict) or not kind:
        return "any JSON"
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("oneOf", "anyOf", "allOf"):
        if word in kind:
            return " or ".join(dict.fromkeys(_type(each) for each in kind[word]))
    if "enum" in kind:
        return ", ".join("null" if value is None else f"`{value}`" for value in kind["enum"])
    if "const" in kind:
        return f"`{kind['const']}`"
    names = kind.get("type", "any JSON")
    return " or ".join(_one(name, kind) for name in (names if isinstance(names, list) else [names]))


def _one(name: str, kind: Schema) -> str:
    if name == "array":
        return f"list of {_type(kind.get('items'))}"
    if name == "object" and isinstance(kind.get("additionalProperties"), dict):
        values = kind["additionalProperties"]
        return f"object of {_type(values)}" if values else "object"
    return f"{name} ({kind['format']})" if name == "string" and "format" in kind else name


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    document = schema()
    if lacking := missing(document):
        sys.exit("\n".join(lacking))
    if "--check" not in sys.argv:
        PAGE.write_text(text(document), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text(document):
        sys.exit(f"{PAGE.name} is not up to date; run {COMMAND}")


if __name__ == "__main__":
    main()
