"""How rows go to each engine: the columns of the models, and their values as parameters.

The hot paths write SQL of their own, and this is where it is put together. Every parameter goes to
PostgreSQL as text without a type, so that the server takes the type of the column and one prepared
statement serves whatever the size of a number.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from django.db import models

from helix_sessions.models.fields import DocumentField

Encoder: TypeAlias = Callable[[Any], Any]
Row: TypeAlias = tuple[Any, ...]


def _naive_utc(value: datetime) -> str:
    if value.tzinfo is UTC:
        return value.isoformat(" ").removesuffix("+00:00")
    return str(value.astimezone(UTC).replace(tzinfo=None))


def _converter(conversions: list[tuple[int, Encoder]]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that converts some values of a row; null stays null."""

    def convert(row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for index, conversion in conversions:
            if values[index] is not None:
                values[index] = conversion(values[index])
        return values

    return convert


class Table:
    """A model's table, as the store's own SQL sees it. Documents are passed as their text."""

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.name = f'"{model._meta.db_table}"'
        fields = model._meta.local_concrete_fields
        self.columns = tuple(field.attname for field in fields)
        self.fields = dict(zip(self.columns, fields, strict=True))
        self._encoders = {
            "postgresql": {name: self._for_postgresql(field) for name, field in self.fields.items()},
            "sqlite": {name: self._for_sqlite(field) for name, field in self.fields.items()},
        }

    @staticmethod
    def _for_postgresql(field: "models.Field[Any, Any]") -> Encoder | None:
        if isinstance(field, models.DateTimeField):
            return datetime.isoformat
        if isinstance(field, models.IntegerField | models.BooleanField):
            return str
        if isinstance(field, models.ForeignKey) and field.name != "session":
            return str
        return None

    @staticmethod
    def _for_sqlite(field: "models.Field[Any, Any]") -> Encoder | None:
        if isinstance(field, models.DateTimeField):
            return _naive_utc
        if isinstance(field, models.ForeignKey) and isinstance(field.target_field, models.UUIDField):
            return UUID.hex.__get__
        return None

    @lru_cache(maxsize=512)  # noqa: B019 - tables live as long as the process
    def encoder(self, vendor: str, columns: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        """A function that turns values of these columns into parameters."""
        conversions = [
            (index, encoder)
            for index, column in enumerate(columns)
            if (encoder := self._encoders[vendor][column]) is not None
        ]

        return _converter(conversions)

    def selection(self, vendor: str, columns: Sequence[str], prefix: str = "") -> str:
        """The columns for a SELECT, documents as text."""
        cast = "::text" if vendor == "postgresql" else ""
        return ", ".join(
            f'{prefix}"{name}"{cast if isinstance(self.fields[name], DocumentField) else ""}'
            for name in columns
        )

    @lru_cache(maxsize=64)  # noqa: B019
    def decoder(self, columns: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        """A function that turns a row of these columns into values; documents stay text."""
        conversions = [
            (index, conversion)
            for index, name in enumerate(columns)
            if (conversion := self._from_database(self.fields[name])) is not None
        ]
        return _converter(conversions)

    @staticmethod
    def _from_database(field: "models.Field[Any, Any]") -> Encoder | None:
        if isinstance(field, models.DateTimeField):
            return aware
        if isinstance(field, models.BooleanField):
            return bool
        if isinstance(field, models.ForeignKey) and isinstance(field.target_field, models.UUIDField):
            return field.target_field.to_python
        return None


def aware(value: datetime | str) -> datetime:
    """A time read from the database; SQLite keeps it in UTC without saying so."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


@cache
def table(model: type[models.Model]) -> Table:
    return Table(model)


@lru_cache(maxsize=512)
def insert_sql(model: type[models.Model], columns: tuple[str, ...], rows: int) -> str:
    """An INSERT of so many rows."""
    row = f"({', '.join(['%s'] * len(columns))})"
    names = ", ".join(f'"{column}"' for column in columns)
    return f"INSERT INTO {table(model).name} ({names}) VALUES {', '.join([row] * rows)}"  # noqa: S608


@lru_cache(maxsize=512)
def update_sql(model: type[models.Model], columns: tuple[str, ...], keys: tuple[str, ...]) -> str:
    """An UPDATE of these columns of the row with these keys."""
    changes = ", ".join(f'"{column}" = %s' for column in columns)
    where = " AND ".join(f'"{key}" = %s' for key in keys)
    return f"UPDATE {table(model).name} SET {changes} WHERE {where}"  # noqa: S608
