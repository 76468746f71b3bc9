"""How rows go to each engine: the columns of the models, and their values as parameters.

The hot paths write SQL of their own, and this is where it is put together. Every parameter goes to
PostgreSQL as text without a type, so that the server takes the type of the column and one prepared
statement serves whatever the size of a number.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from django.db import models

from helix_sessions.content import encryption
from helix_sessions.content.encryption import SEALED, Keyring
from helix_sessions.models.fields import DocumentField, IdField, key_of

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


class Content(NamedTuple):
    """Which of some columns are content, and where their primary key is among them."""

    texts: tuple[tuple[int, str], ...]
    digests: tuple[int, ...]
    key: tuple[int, ...]


class Table:
    """A model's table, as the store's own SQL sees it. Documents are passed as their text.

    This is where content is sealed on its way to the database, and opened on its way back.
    """

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.name = f'"{model._meta.db_table}"'
        fields = model._meta.local_concrete_fields
        self.columns = tuple(field.attname for field in fields)
        self.fields = dict(zip(self.columns, fields, strict=True))
        self.kind = str(model._meta.model_name)
        self.key = key_of(model)
        self.content = tuple(
            name
            for name, field in self.fields.items()
            if isinstance(field, DocumentField) and not field.searchable
        )
        self.digests = tuple(
            name for name, field in self.fields.items() if isinstance(field, IdField) and field.digest
        )
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

    def encoder(self, vendor: str, columns: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        """A function that turns values of these columns into parameters. Where content is among them, the
        whole primary key has to be."""
        encode, content = self._encoder(vendor, columns)
        ring = encryption.keyring()
        if ring is None or ring.active is None or content is None:
            return encode
        return lambda row: encode(self._sealed(ring, content, row))

    def _sealed(self, ring: Keyring, content: Content, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        key = [values[index] for index in content.key]
        for index, column in content.texts:
            if values[index] is not None:
                values[index] = ring.seal((self.kind, column, *key), values[index])
        for index in content.digests:
            values[index] = ring.veil(str(key[0]), values[index])
        return values

    @lru_cache(maxsize=512)  # noqa: B019 - tables live as long as the process
    def _encoder(
        self, vendor: str, columns: tuple[str, ...]
    ) -> tuple[Callable[[Sequence[Any]], list[Any]], Content | None]:
        conversions = [
            (index, encoder)
            for index, column in enumerate(columns)
            if (encoder := self._encoders[vendor][column]) is not None
        ]

        return _converter(conversions), self.content_of(columns)

    @lru_cache(maxsize=512)  # noqa: B019
    def content_of(self, columns: tuple[str, ...], key_known: bool = False) -> Content | None:
        """What of these columns is content; `None` if nothing is."""
        texts = tuple((index, name) for index, name in enumerate(columns) if name in self.content)
        digests = tuple(index for index, name in enumerate(columns) if name in self.digests)
        if not texts and not digests:
            return None
        key = () if key_known else tuple(columns.index(name) for name in self.key)
        return Content(texts, digests, key)

    def opened(
        self, columns: tuple[str, ...], values: list[Any], key: Sequence[Any] | None = None
    ) -> list[Any]:
        """The values with their content opened, in place. The key, if it is not among them, is given."""
        content = self.content_of(columns, key is not None)
        if content is None:
            return values
        place = [values[index] for index in content.key] if key is None else key
        for index, column in content.texts:
            text = values[index]
            if text is not None and text.startswith(SEALED):
                values[index] = encryption.open_text((self.kind, column, *place), text)
        for index in content.digests:
            values[index] = encryption.unveil(place[0], values[index])
        return values

    def open_text(self, column: str, text: str, *key: Any) -> str:
        """One text of a column, opened."""
        return encryption.open_text((self.kind, column, *key), text) if text.startswith(SEALED) else text

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
def insert_sql(
    model: type[models.Model], columns: tuple[str, ...], rows: int, *, replacing: bool = False
) -> str:
    """An INSERT of so many rows; `replacing`, in place of those that have their keys."""
    row = f"({', '.join(['%s'] * len(columns))})"
    names = ", ".join(f'"{column}"' for column in columns)
    sql = f"INSERT INTO {table(model).name} ({names}) VALUES {', '.join([row] * rows)}"  # noqa: S608
    return f"{sql} {replace_sql(model)}" if replacing else sql


def replace_sql(model: type[models.Model]) -> str:
    """What an INSERT ends with that takes the place of rows that have its keys."""
    rows = table(model)
    keys = ", ".join(f'"{name}"' for name in rows.key)
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in rows.columns if name not in rows.key)
    return f"ON CONFLICT ({keys}) DO UPDATE SET {changes}"


@lru_cache(maxsize=512)
def update_sql(model: type[models.Model], columns: tuple[str, ...], keys: tuple[str, ...]) -> str:
    """An UPDATE of these columns of the row with these keys."""
    changes = ", ".join(f'"{column}" = %s' for column in columns)
    where = " AND ".join(f'"{key}" = %s' for key in keys)
    return f"UPDATE {table(model).name} SET {changes} WHERE {where}"  # noqa: S608
