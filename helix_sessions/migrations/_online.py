"""Operations on tables that are large and in use. On PostgreSQL a migration that adds a column locks its table
until it commits, so what reads the whole table is put off: indexes and checks are declared where they belong,
and a later migration, which is no transaction, builds them while sessions are written.
"""

from typing import Any

from django.db import migrations, models

SECONDS = 5
"""How long a migration waits for a lock on a table in use. Whatever comes after it waits as long."""


def wait_briefly(apps: Any, schema_editor: Any) -> None:
    """Give up when the lock is not to be had, unless the role has a limit of its own. Repeat the migration."""
    connection = schema_editor.connection
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, true) WHERE current_setting('lock_timeout') = '0'",
                [f"{SECONDS}s"],
            )


def WaitBriefly() -> migrations.RunPython:  # noqa: N802 - it stands among operations
    return migrations.RunPython(wait_briefly, migrations.RunPython.noop)


class DeclareIndex(migrations.AddIndex):
    """Adds an index; on PostgreSQL `BuildDeclared` of a later migration builds it."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
        else:
            schema_editor.execute(f'DROP INDEX IF EXISTS "{self.index.name}"')


class DeclareCheck(migrations.AddConstraint):
    """Adds a check; on PostgreSQL it holds for new rows, and `BuildDeclared` looks at the old ones."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        schema_editor.execute(f"{self.constraint.create_sql(model, schema_editor)} NOT VALID")


class BuildDeclared(migrations.RunPython):
    """Builds the indexes and looks at the rows of the checks that were declared, without keeping writers out.
    What an attempt before has left half done is done again. The migration must not be atomic."""

    reduces_to_sql = False

    def __init__(self, *, indexes: dict[str, tuple[str, ...]], checks: dict[str, tuple[str, ...]]) -> None:
        self.indexes = indexes
        self.checks = checks
        super().__init__(self._build, migrations.RunPython.noop)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [], {"indexes": self.indexes, "checks": self.checks}

    def _build(self, apps: Any, schema_editor: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            return
        for model_name, names in self.indexes.items():
            model = apps.get_model("helix_sessions", model_name)
            for name in names:
                self._build_index(model, name, schema_editor)
        for model_name, names in self.checks.items():
            table = apps.get_model("helix_sessions", model_name)._meta.db_table
            for name in names:
                schema_editor.execute(f'ALTER TABLE "{table}" VALIDATE CONSTRAINT "{name}"')

    def _build_index(self, model: type[models.Model], name: str, schema_editor: Any) -> None:
        is_valid = _validity(schema_editor.connection, name)
        if is_valid:
            return
        if is_valid is not None:
            schema_editor.execute(f'DROP INDEX CONCURRENTLY "{name}"')
        index = next(index for index in model._meta.indexes if index.name == name)
        schema_editor.add_index(model, index, concurrently=True)


def _validity(connection: Any, name: str) -> bool | None:
    """Whether an index is whole; `None` if there is none."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [f'"{name}"'])
        row = cursor.fetchone()
    return None if row is None else bool(row[0])
