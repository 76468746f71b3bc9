"""What pruning keeps of a LangGraph thread, and lines of checkpoints that are no lines."""

from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.serde.types")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.store import SessionStore

pytestmark = pytest.mark.django_db(transaction=True)

Config = dict[str, Any]


def put(
    parent: Config | None,
    values: dict[str, Any],
    *,
    namespace: str = "",
    thread: str = "t",
    id: str | None = None,
    **metadata: Any,
) -> Config:
    config: Config = parent or {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": id or str(uuid6()),
        "channel_values": values,
        "channel_versions": dict.fromkeys(("a", "m"), str(uuid6())),
    }
    written: Any = {"source": "loop", "step": 1, "parents": {}, **metadata}
    versions = {name: checkpoint["channel_versions"][name] for name in values}
    made: Any = DjangoSaver().put(config, checkpoint, written, versions)  # type: ignore[arg-type]
    return dict(made)


def left(namespace: str | None = None) -> list[tuple[str, str]]:
    within = {} if namespace is None else {"checkpoint_ns": namespace}
    found = DjangoSaver().list({"configurable": {"thread_id": "t", **within}})
    return [
        (one.config["configurable"]["checkpoint_ns"], str(one.checkpoint["channel_values"].get("a")))
        for one in found
    ]


def test_one_id_is_not_taken_for_many(store: SessionStore) -> None:
    for thread in ("t", "x"):
        put(None, {"a": 1}, thread=thread)
    for strategy in ("keep_latest", "delete"):
        with pytest.raises(TypeError, match="not a str"):
            DjangoSaver().prune("tx", strategy=strategy)
    assert store.session_exists("t")


def test_what_is_kept_has_no_parent_that_is_gone(store: SessionStore) -> None:
    second = put(put(None, {"a": 1}), {"a": 2})
    before = DjangoSaver().get_tuple(second)  # type: ignore[arg-type]
    DjangoSaver().prune(["t"])
    assert before is not None
    assert before.parent_config is not None
    assert DjangoSaver().get_tuple(second) == before._replace(  # type: ignore[arg-type]
        parent_config=None, config=before.config
    )


def test_a_call_of_a_subgraph_goes_with_the_checkpoint_that_made_it(store: SessionStore) -> None:
    older = put(None, {"a": "older"})
    newest = put(older, {"a": "newest"})
    callers = {
        "over:1": older["configurable"]["checkpoint_id"],
        "waits:2": newest["configurable"]["checkpoint_id"],
        "runs:3": str(uuid6()),
        "stateful": older["configurable"]["checkpoint_id"],
    }
    for namespace, caller in callers.items():
        first = put(None, {"a": "first"}, namespace=namespace, parents={"": caller})
        put(first, {"a": "last"}, parents={"": caller})
    DjangoSaver().prune(["t"])
    assert {*left()} == {("", "newest"), ("waits:2", "last"), ("runs:3", "last"), ("stateful", "last")}


def test_what_a_delta_channel_is_rebuilt_from_is_kept(store: SessionStore) -> None:
    types = pytest.importorskip("langgraph.checkpoint.serde.types")
    if not hasattr(types, "_DeltaSnapshot"):
        pytest.skip("this LangGraph has no delta channels")
    for described in ({"counters_since_delta_snapshot": {"m": [1, 1]}}, {}):
        first = put(put(None, {"a": 0}), {"m": types._DeltaSnapshot([1]), "a": 1})
        DjangoSaver().put_writes(first, [("m", 2)], "task")  # type: ignore[arg-type]
        last: Any = put(first, {"a": 2}, **described)
        DjangoSaver().prune(["t"])
        history = DjangoSaver().get_delta_channel_history(config=last, channels=["m"])["m"]
        assert history["seed"] == types._DeltaSnapshot([1])
        assert [value for _, _, value in history["writes"]] == [2]
        assert left() == [("", "2"), ("", "1")]
        DjangoSaver().delete_thread("t")


def test_a_line_of_checkpoints_that_goes_round_has_an_end(store: SessionStore) -> None:
    first = put(None, {"a": 1}, id="1")
    second: Any = put(first, {"a": 2}, id="2")
    put(second, {"a": 1}, id="1")
    found = DjangoSaver().get_delta_channel_history(config=second, channels=["nothing"])
    assert found == {"nothing": {"writes": []}}
    DjangoSaver().prune(["t"])
    assert left() == [("", "2")]
