"""The queries of an import from the tables of the OpenAI Agents SDK, whose names are checked before."""


def session_ids(table: str) -> str:
    """The sessions."""
    return f"SELECT session_id FROM {table} ORDER BY session_id"  # noqa: S608


def items(table: str, mark: str) -> str:
    """The items of one session; `mark` is the placeholder of the driver."""
    return f"SELECT message_data FROM {table} WHERE session_id = {mark} ORDER BY id"  # noqa: S608
