"""JSON documents for property tests, and how to tell whether two are exactly the same."""

import json
from typing import Any

from hypothesis import strategies as st

# Few names and small numbers, so that documents, paths and values often meet.
names = st.sampled_from(["a", "b", "c", "0", "1", "-", "", "é"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 10**40, 0.0, -0.0, 1.0, 2.5, "", "a", "1", "\x00"]),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=5)

paths = st.lists(names | st.integers(-1, 4), min_size=1, max_size=4)
writes = st.one_of(
    st.builds(lambda path, value: {"op": "set", "path": path, "value": value}, paths, values),
    st.builds(lambda path, value: {"op": "insert", "path": path, "value": value}, paths, values),
    st.builds(lambda path, value: {"op": "append", "path": path, "values": [value]}, paths, values),
    st.builds(lambda path: {"op": "delete", "path": path}, paths),
)


def text(document: Any) -> str:
    """Equal for two documents only if they agree in values, types and the order of keys."""
    return json.dumps(document)
