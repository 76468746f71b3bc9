"""Many sessions at once, made by the server out of one."""

from bench.place import Place

_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = '{table}' ORDER BY ordinal_position
"""


def copy_session(
    place: Place, database: str, table: str, session_id: str, count: int, /, **other: str
) -> None:
    """Add `count` sessions like the given one, a second apart, of a thousand users; `other` columns are made
    of `n`, the number of each."""
    made = {
        "session_id": "'filled-' || n",
        "user_id": "'user-' || n % 1000",
        "created_at": "created_at - n * interval '1 second'",
        "updated_at": "created_at - n * interval '1 second'",
        **other,
    }
    columns = [name for (name,) in place.execute(_COLUMNS.format(table=table), database)]
    values = ", ".join(made.get(name, f'"{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    place.execute(
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {table}, generate_series(1, {count}) AS n"
        f" WHERE session_id = '{session_id}'",
        database,
    )
