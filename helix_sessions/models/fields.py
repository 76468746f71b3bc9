"""Columns: ids that sort alike on every engine, and documents that come back byte for byte."""

from typing import Any, TypeAlias

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Cast, Left, Length

from helix_sessions import documents

Sql: TypeAlias = tuple[str, tuple[Any, ...]]


class IdField(models.CharField):  # type: ignore[type-arg]
    """A short text compared by its code points, on PostgreSQL as on SQLite."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 255)
        super().__init__(*args, **kwargs)

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        # Spelled out, because for a "varchar" primary key Django adds a second index for LIKE,
        # which the "C" collation makes needless.
        name = "character varying" if connection.vendor == "postgresql" else "varchar"
        return f"{name}({self.max_length})"

    def cast_db_type(self, connection: BaseDatabaseWrapper) -> str:
        return self.db_type(connection)

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        if connection.vendor == "postgresql":
            parameters["collation"] = "C"
        return parameters


class DocumentField(models.Field):  # type: ignore[type-arg]
    """A JSON value kept as the text it was written with: `json`, not `jsonb`, on PostgreSQL."""

    empty_strings_allowed = False

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "json" if connection.vendor == "postgresql" else "text"

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        # As text, so that the driver does not parse it and a string is never taken for its parsed self.
        return (f"{sql}::text", params) if compiler.connection.vendor == "postgresql" else (sql, params)

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        return None if value is None else documents.load(value)

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return documents.dump(value)


def beginning_of(column: str, characters: int) -> Left:
    """The first characters of a document's text, cut by the database."""
    return Left(Cast(column, models.TextField()), characters)


def size_of(column: str) -> Length:
    """How many characters a document's text has."""
    return Length(Cast(column, models.TextField()))


@DocumentField.register_lookup
class ListHas(models.Lookup):
    """`tags__has="x"`: the document is a list that holds this string."""

    lookup_name = "has"
    prepare_rhs = False

    def get_db_prep_lookup(self, value: Any, connection: BaseDatabaseWrapper) -> Sql:
        return "%s", (value,)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, column_params = self.process_lhs(compiler, connection)
        value, value_params = self.process_rhs(compiler, connection)
        found = f"EXISTS (SELECT 1 FROM json_each({column}) AS item WHERE item.value = {value})"  # noqa: S608
        return found, (*column_params, *value_params)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, column_params = self.process_lhs(compiler, connection)
        return f"({column})::jsonb @> %s::jsonb", (*column_params, documents.dump([self.rhs]))


@DocumentField.register_lookup
class ObjectHasKey(models.Lookup):
    """`metadata__has_key="k"`: the document is an object with this top-level key."""

    lookup_name = "has_key"
    prepare_rhs = False

    def get_db_prep_lookup(self, value: Any, connection: BaseDatabaseWrapper) -> Sql:
        return "%s", (value,)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, params = self.process_lhs(compiler, connection)
        return f"EXISTS (SELECT 1 FROM json_each({column}) AS item WHERE item.key = %s)", (*params, self.rhs)  # noqa: S608

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, params = self.process_lhs(compiler, connection)
        return f"({column})::jsonb ? %s", (*params, self.rhs)


@DocumentField.register_lookup
class ObjectHasItems(models.Lookup):
    """`metadata__has_items={"k": "v"}`: the document is an object with these top-level scalar items."""

    lookup_name = "has_items"
    prepare_rhs = False

    def get_db_prep_lookup(self, value: Any, connection: BaseDatabaseWrapper) -> Sql:
        return "%s", (value,)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, column_params = self.process_lhs(compiler, connection)
        found, params = [], []
        for key, value in self.rhs.items():
            wanted = documents.dump(value)
            found.append(
                f"EXISTS (SELECT 1 FROM json_each({column}) AS item WHERE item.key = %s"  # noqa: S608
                f" AND item.type = json_type(%s) AND item.value IS json_extract(%s, '$'))"
            )
            params.extend([*column_params, key, wanted, wanted])
        return " AND ".join(found) or "1 = 1", tuple(params)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, column_params = self.process_lhs(compiler, connection)
        return f"({column})::jsonb @> %s::jsonb", (*column_params, documents.dump(self.rhs))
