"""Components of the OpenAPI document, derived from the types of what the API sends.

A dataclass or a TypedDict becomes an object: its annotations give the properties, the line under a field
its description, the first paragraph of its docstring that of the component. Where an annotation is
`Annotated`, the API sends its second argument. This module needs drf-spectacular.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial, reduce
from itertools import pairwise
from operator import or_
from textwrap import dedent
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.plumbing import (
    append_meta,
    build_array_type,
    build_basic_type,
    build_choice_field,
    build_object_type,
    get_doc,
)
from drf_spectacular.settings import spectacular_settings
from rest_framework.serializers import ChoiceField

from helix_sessions.api import oas
from helix_sessions.api.outputs import NAMES
from helix_sessions.api.tickets import PARAMETER, TicketAuthentication
from helix_sessions.types import Page

Schema = dict[str, Any]


class Output:
    """A type of what the API sends, in the form that drf-spectacular takes for a serializer."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


class OutputExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    target_class = Output

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        return name_of(self.target.kind)

    def get_identity(self, auto_schema: Any, direction: Any) -> Any:
        return self.target.kind

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        def reference(kind: Any) -> Schema:
            found: Schema = auto_schema.resolve_serializer(Output(kind), direction).ref
            return found

        return object_of(self.target.kind, reference)


class TicketScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = TicketAuthentication
    name = "streamTicket"

    def get_security_definition(self, auto_schema: Any) -> Schema:
        return {"type": "apiKey", "in": "query", "name": PARAMETER}


ENUMS = {
    "SessionStatus": "helix_sessions.types.SESSION_STATUSES",
    "RunStatus": "helix_sessions.types.RUN_STATUSES",
    "SessionMode": "helix_sessions.types.MODES",
    "CheckpointSource": "helix_sessions.types.CHECKPOINT_SOURCES",
    "SubSessionMode": "helix_sessions.types.REF_MODES",
    "SubSessionLocation": "helix_sessions.types.REF_LOCATIONS",
    "Suspension": "helix_sessions.types.SUSPENSIONS",
    "CallKind": "helix_sessions.types.CALL_KINDS",
    "WebhookEvent": "helix_sessions.types.WEBHOOK_EVENTS",
    "ScheduleSession": "helix_sessions.types.SCHEDULE_SESSIONS",
    "Overlap": "helix_sessions.types.OVERLAPS",
    "FiringState": "helix_sessions.types.FIRING_STATES",
    "DeliveryState": "helix_sessions.types.DELIVERY_STATES",
    "EndStatus": "helix_sessions.types.TERMINAL_STATUSES",
}
"""The names of sets of choices, which drf-spectacular would make up, with warnings. A project's own come
first."""

for _name, _choices in ENUMS.items():
    spectacular_settings.ENUM_NAME_OVERRIDES.setdefault(_name, _choices)


def name_of(kind: Any) -> str:
    """Return the name of a type's component."""
    if kind in NAMES:
        return NAMES[kind]
    if get_origin(kind) is Page:
        return f"{name_of(get_args(kind)[0])}Page"
    return str(kind.__name__)


def object_of(kind: Any, reference: Callable[[Any], Schema]) -> Schema:
    """Return the schema of a dataclass or a TypedDict. `reference` gives the one of a type inside it."""
    plain = get_origin(kind) or kind
    hints = get_type_hints(plain, include_extras=True)
    names = [field.name for field in fields(plain)] if is_dataclass(plain) else list(hints)
    arguments = dict(zip(getattr(plain, "__parameters__", ()), get_args(kind), strict=True))
    notes = notes_of(plain)
    properties = {}
    for name in names:
        schema = schema_of(hints[name], reference, arguments)
        properties[name] = _described(schema, notes[name]) if name in notes else schema
    required = getattr(plain, "__required_keys__", names)
    return build_object_type(properties, required, _http(get_doc(plain).partition("\n\n")[0]))


def schema_of(hint: Any, reference: Callable[[Any], Schema], arguments: Mapping[Any, Any]) -> Schema:
    """Return the schema of an annotation. `arguments` are the arguments of a generic type."""
    inner = partial(schema_of, reference=reference, arguments=arguments)
    plain, args = get_origin(hint) or hint, get_args(hint)
    if plain is Annotated:
        return inner(args[1])
    if plain is NotRequired:
        return inner(args[0])
    if plain in arguments:
        return inner(arguments[plain])
    if plain is Any:
        return {}
    if plain in (Union, UnionType):
        return _union([inner(each) for each in args if each is not NoneType], NoneType in args)
    if plain is Literal and all(isinstance(each, str) for each in args):
        return build_choice_field(ChoiceField(args))
    if plain is Literal:
        return inner(type(args[0]))
    if is_dataclass(plain) or is_typeddict(plain):
        return reference(hint)
    if plain in (dict, Mapping):
        return build_object_type(additionalProperties=inner(args[1]))
    if plain is tuple and args[-1] is not ...:
        return {**build_array_type(inner(reduce(or_, args))), "minItems": len(args), "maxItems": len(args)}
    if plain in (list, tuple, Sequence):
        return build_array_type(inner(args[0]))
    return build_basic_type(plain) or {}


def _union(schemas: list[Schema], nullable: bool) -> Schema:
    if len(schemas) == 1:
        (schema,) = schemas
    elif all(list(schema) == ["type"] for schema in schemas):
        schema = oas.written({"type": [schema["type"] for schema in schemas]})
    else:
        schema = {"oneOf": schemas}
    if not nullable:
        return schema
    if "enum" in schema:
        schema["enum"].append(None)
    return append_meta(schema, {"nullable": True})


def _described(schema: Schema, note: str) -> Schema:
    """Return the schema with a description, which stands before that of the choices."""
    choices = schema.get("description")
    return append_meta(schema, {"description": f"{note}\n\n{choices}" if choices else note})


@cache
def notes_of(kind: type) -> Mapping[str, str]:
    """Return the line under each field of a class; none where the source is not at hand."""
    try:
        tree = ast.parse(dedent(inspect.getsource(kind)))
    except OSError:
        return {}
    body = [line for node in tree.body if isinstance(node, ast.ClassDef) for line in node.body]
    return {
        field.target.id: _http(note.value.value)
        for field, note in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant)
        if isinstance(note.value.value, str)
    }


def _http(text: str) -> str:
    """Return a docstring on one line and in the words of JSON."""
    return " ".join(text.split()).replace("`None`", "`null`")
