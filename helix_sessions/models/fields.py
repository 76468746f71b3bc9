"""Columns: ids that sort alike on every engine, and documents that come back byte for byte."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeAlias

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, When
from django.db.models.functions import Cast, Left, Length
from django.db.models.lookups import Exact
from django.db.models.query_utils import DeferredAttribute

from helix_sessions.content import documents, encryption
from helix_sessions.content.encryption import SEALED, Sealed

Sql: TypeAlias = tuple[str, tuple[Any, ...]]


class IdField(models.CharField):  # type: ignore[type-arg]
    """A short text compared by its code points, on PostgreSQL as on SQLite. One that is the `digest` of
    content is veiled where content is encrypted."""

    def __init__(self, *args: Any, digest: bool = False, **kwargs: Any) -> None:
        self.digest = digest
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


class DocumentAttribute(DeferredAttribute):
    """A document of an instance; encrypted content is decrypted on first access."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        name = self.field.attname
        value = instance.__dict__.get(name)
        if type(value) is Sealed:
            text = encryption.open_text(place_of(instance, name), value.text)
            value = instance.__dict__[name] = documents.load(text)
        elif name not in instance.__dict__:
            return super().__get__(instance, cls)
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.field.attname] = value


class DocumentField(models.Field):  # type: ignore[type-arg]
    """A JSON value kept as the text it was written with: `json`, not `jsonb`, on PostgreSQL.

    It is content, and encrypted where encryption is on, unless it is `searchable`: operators filter by these.
    """

    empty_strings_allowed = False
    descriptor_class = DocumentAttribute

    def __init__(self, *args: Any, searchable: bool = False, **kwargs: Any) -> None:
        self.searchable = searchable
        super().__init__(*args, **kwargs)

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "json" if connection.vendor == "postgresql" else "text"

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        # As text, so that the driver does not parse it and a string is never taken for its parsed self.
        return (f"{sql}::text", params) if compiler.connection.vendor == "postgresql" else (sql, params)

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        if value is None:
            return None
        return Sealed(value) if value.startswith(SEALED) else documents.load(value)

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return documents.dump(value)


class VectorField(models.Field):  # type: ignore[type-arg]
    """Numbers of single precision: an array on PostgreSQL, which pgvector can cast, and bytes on SQLite."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "real[]" if connection.vendor == "postgresql" else "blob"


class CounterField(models.BigIntegerField):  # type: ignore[type-arg]
    """A number that is added to: a row that is put in the place of another adds its own. It stays below what
    hundreds of them may be summed up of, for any report."""

    MOST = 10**16


class SecretAttribute(DeferredAttribute):
    """A secret of an instance, decrypted on first access."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        value = super().__get__(instance, cls)
        if type(value) is Sealed:
            name = self.field.attname
            value = instance.__dict__[name] = encryption.open_text(place_of(instance, name), value.text)
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.field.attname] = value


class SecretField(models.TextField):  # type: ignore[type-arg]
    """A text that is encrypted where encryption is on, on every way to save the instance."""

    descriptor_class = SecretAttribute

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        return Sealed(value) if value is not None and value.startswith(SEALED) else value

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        value = getattr(model_instance, self.attname)
        return encryption.seal_text(place_of(model_instance, self.attname), value)


@cache
def key_of(model: type[models.Model]) -> tuple[str, ...]:
    """The columns of a table's primary key, in order."""
    fields = getattr(model._meta, "pk_fields", None) or [model._meta.pk]
    return tuple(field.attname for field in fields)


def place_of(instance: models.Model, column: str) -> encryption.Place:
    """Where a column of an instance is stored."""
    key = [instance.__dict__[name] for name in key_of(type(instance))]
    return (instance._meta.model_name, column, *key)


def beginning_of(column: str, characters: int) -> Case:
    """The first characters of a document's text, cut by the database; encrypted content cannot be cut."""
    text = Cast(column, models.TextField())
    cut = Left(text, characters, output_field=models.TextField())
    return Case(When(Exact(Left(text, 1), SEALED), then=text), default=cut)


def size_of(column: str) -> Length:
    """How many characters a document's text has."""
    return Length(Cast(column, models.TextField()))


class NumberAt(models.Func):
    """`NumberAt("usage", "cost")`: a number of a searchable document, 0 where there is none."""

    output_field = models.FloatField()

    def __init__(self, column: str, key: str) -> None:
        super().__init__(models.F(column), models.Value(key))

    def as_sqlite(self, compiler: Any, connection: BaseDatabaseWrapper, **context: Any) -> Sql:
        number = "COALESCE(CAST(json_extract(%(expressions)s) AS REAL), 0)"
        column, key = self.get_source_expressions()
        path = models.Value(f"$.{key.value}")
        found: Sql = models.Func(column, path, template=number).as_sql(compiler, connection)
        return found

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper, **context: Any) -> Sql:
        column, params = compiler.compile(self.get_source_expressions()[0])
        key, more = compiler.compile(self.get_source_expressions()[1])
        return f"COALESCE(({column} ->> {key})::double precision, 0)", (*params, *more)


def among(vendor: str, column: str, values: Iterable[str]) -> tuple[str, Any]:
    """A condition that the column is one of these texts, with one parameter for all of them."""
    if vendor == "postgresql":
        return f"{column} = ANY(%s::text[])", list(values)
    return f"{column} IN (SELECT value FROM json_each(%s))", documents.write(list(values))  # noqa: S608


@IdField.register_lookup
class Among(models.Lookup):
    """`session_id__among=keys`: `in`, in a statement that does not grow with the keys."""

    lookup_name = "among"
    prepare_rhs = False

    def get_db_prep_lookup(self, value: Any, connection: BaseDatabaseWrapper) -> Sql:
        return "%s", (value,)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, column_params = self.process_lhs(compiler, connection)
        condition, value = among(connection.vendor, column, self.rhs)
        return condition, (*column_params, value)


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
class ListHasAny(models.Lookup):
    """`tags__has_any=["x", "y"]`: the document is a list that holds one of these strings."""

    lookup_name = "has_any"
    prepare_rhs = False

    def get_db_prep_lookup(self, value: Any, connection: BaseDatabaseWrapper) -> Sql:
        return "%s", (value,)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, params = self.process_lhs(compiler, connection)
        condition, value = among(connection.vendor, "item.value", self.rhs)
        found = f"EXISTS (SELECT 1 FROM json_each({column}) AS item WHERE {condition})"  # noqa: S608
        return found, (*params, value)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, params = self.process_lhs(compiler, connection)
        return f"({column})::jsonb ?| %s::text[]", (*params, list(self.rhs))


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
        there = (
            f"SELECT 1 FROM json_each({column}) AS item WHERE item.key = wanted.key"  # noqa: S608
            " AND item.type = wanted.type AND item.value IS wanted.value"
        )
        missing = f"SELECT 1 FROM json_each(%s) AS wanted WHERE NOT EXISTS ({there})"  # noqa: S608
        return f"NOT EXISTS ({missing})", (documents.dump(self.rhs), *column_params)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, column_params = self.process_lhs(compiler, connection)
        return f"({column})::jsonb @> %s::jsonb", (*column_params, documents.dump(self.rhs))
