"""The tables as the store's own SQL sees them: columns, values as parameters, and plain statements."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

from django.db import models

from helix_sessions.content import blobs, encryption
from helix_sessions.content.blobs import MARK
from helix_sessions.content.encryption import SEALED, Keyring
from helix_sessions.models.fields import CounterField, DocumentField, IdField, key_of
from helix_sessions.store.engine.dialect import Dialect, Encoder

Row: TypeAlias = tuple[Any, ...]


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

    def encoder(self, dialect: Dialect, columns: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        """A function that turns values of these columns into parameters. Where content is among them, the
        whole primary key has to be."""
        encode, content = self._encoder(dialect, columns)
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
        self, dialect: Dialect, columns: tuple[str, ...]
    ) -> tuple[Callable[[Sequence[Any]], list[Any]], Content | None]:
        conversions = [
            (index, encoder)
            for index, column in enumerate(columns)
            if (encoder := dialect.encoder(self.fields[column])) is not None
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
        self,
        columns: tuple[str, ...],
        values: list[Any],
        key: Sequence[Any] | None = None,
        *,
        with_blobs: bool = True,
    ) -> list[Any]:
        """Decrypt the content among the values, in place, and put attachments back into it. Without `key` the
        primary key is among them."""
        content = self.content_of(columns, key is not None)
        if content is None:
            return values
        place = [values[index] for index in content.key] if key is None else key
        for index, column in content.texts:
            text = values[index]
            if text is not None and text.startswith(SEALED):
                text = values[index] = encryption.open_text((self.kind, column, *place), text)
            if with_blobs and text is not None and text.startswith(MARK):
                values[index] = blobs.whole(text)
        for index in content.digests:
            values[index] = encryption.unveil(place[0], values[index])
        return values

    def open_text(self, column: str, text: str, *key: Any) -> str:
        """Decrypt one text of a column, if it is sealed, and put its attachments back."""
        if text.startswith(SEALED):
            text = encryption.open_text((self.kind, column, *key), text)
        return blobs.whole(text) if text.startswith(MARK) else text

    def selection(self, dialect: Dialect, columns: Sequence[str], prefix: str = "") -> str:
        """The columns for a SELECT, documents as text."""
        return ", ".join(
            dialect.as_text(f'{prefix}"{name}"')
            if isinstance(self.fields[name], DocumentField)
            else f'{prefix}"{name}"'
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
    model: type[models.Model],
    columns: tuple[str, ...],
    rows: int,
    *,
    replacing: bool = False,
    skipping: bool = False,
) -> str:
    """An INSERT of so many rows; `replacing`, in place of those that have their keys; `skipping`, without
    those whose keys are taken."""
    row = f"({', '.join(['%s'] * len(columns))})"
    names = ", ".join(f'"{column}"' for column in columns)
    sql = f"INSERT INTO {table(model).name} ({names}) VALUES {', '.join([row] * rows)}"  # noqa: S608
    if replacing:
        return f"{sql} {replace_sql(model)}"
    return f"{sql} ON CONFLICT DO NOTHING" if skipping else sql


def replace_sql(model: type[models.Model]) -> str:
    """What an INSERT ends with that takes the place of rows that have its keys. Counters are added up."""
    rows = table(model)
    keys = ", ".join(f'"{name}"' for name in rows.key)
    changes = ", ".join(
        f'"{name}" = {_replacement(rows, name)}' for name in rows.columns if name not in rows.key
    )
    return f"ON CONFLICT ({keys}) DO UPDATE SET {changes}"


def _replacement(rows: Table, name: str) -> str:
    if not isinstance(rows.fields[name], CounterField):
        return f'excluded."{name}"'
    added, most = f'{rows.name}."{name}" + excluded."{name}"', CounterField.MOST
    return f"CASE WHEN {added} > {most} THEN {most} ELSE {added} END"


@lru_cache(maxsize=512)
def update_sql(model: type[models.Model], columns: tuple[str, ...], keys: tuple[str, ...]) -> str:
    """An UPDATE of these columns of the row with these keys."""
    changes = ", ".join(f'"{column}" = %s' for column in columns)
    where = " AND ".join(f'"{key}" = %s' for key in keys)
    return f"UPDATE {table(model).name} SET {changes} WHERE {where}"  # noqa: S608
