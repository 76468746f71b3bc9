"""Computes the outcome of observing context sources. Pure."""

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from helix_sessions.content import documents
from helix_sessions.exceptions import ContextUnavailable, InvalidInput
from helix_sessions.store.context.context_tallies import tallies
from helix_sessions.store.engine import inputs
from helix_sessions.types import UNAVAILABLE, ContextEpoch, ContextSource, SessionState

Admitted: TypeAlias = dict[str, list[Any]]
"""By source key the value that the model has, and the text for its removal, because a removed source can no
longer render it."""

_CALLS = ("observe", "baseline", "update", "removed")


class StoredEpoch(NamedTuple):
    """An epoch as its row keeps it; the snapshot is the text of an `Admitted`."""

    baseline: str
    snapshot: str
    baseline_seq: int
    compaction_number: int
    update_characters: int
    """Those of the updates since the baseline."""

    @property
    def admitted(self) -> Admitted:
        admitted: Admitted = documents.load(self.snapshot)
        return admitted


class Observation(NamedTuple):
    """A source and its observed value."""

    key: str
    source: ContextSource
    value: Any
    seconds: float

    @property
    def available(self) -> bool:
        return self.value is not UNAVAILABLE


class Plan(NamedTuple):
    """The outcome. Without a baseline the stored one stays."""

    kind: str
    admitted: Admitted
    baseline: str | None = None
    text: str = ""
    changes: dict[str, dict[str, Any]] = {}


def checked(sources: Any) -> list[tuple[str, ContextSource]]:
    """The sources with their keys, in order."""
    if isinstance(sources, str) or not isinstance(sources, Iterable):
        raise InvalidInput("Sources of a context must be a list.")
    found: dict[str, ContextSource] = {}
    for source in sources:
        missing = [name for name in _CALLS if not callable(getattr(source, name, None))]
        if missing:
            raise InvalidInput(f"{inputs.shown(source)} is no context source: it has no {missing[0]}.")
        key = inputs.identifier(getattr(source, "key", None), "The key of a context source")
        if key in found:
            raise InvalidInput(f"Two context sources have the key {key!r}.")
        found[key] = source
    return list(found.items())


def observe(sources: list[tuple[str, ContextSource]], session: SessionState) -> list[Observation]:
    """Observe each source once."""
    observations = []
    for key, source in sources:
        began = time.perf_counter()
        value = source.observe(session)
        seconds = time.perf_counter() - began
        if value is not UNAVAILABLE:
            value = documents.load(documents.dump(value))  # as it will be when it is read again
        observations.append(Observation(key, source, value, seconds))
        tallies.observed(key, seconds, available=value is not UNAVAILABLE)
    return observations


def plan(epoch: StoredEpoch | None, observations: list[Observation], compacted: bool) -> Plan:
    """Compare the values that the model has with the observed ones. `compacted`: the transcript was compacted
    since the baseline was rendered."""
    unavailable = [seen.key for seen in observations if not seen.available]
    if epoch is None and unavailable:
        raise ContextUnavailable(keys=unavailable)
    if epoch is None or (compacted and not unavailable):
        texts = [_text(seen, "baseline", seen.value) for seen in observations]
        admitted = {seen.key: _admit(seen) for seen in observations}
        return Plan("initialized" if epoch is None else "replaced", admitted, baseline=_joined(texts))
    changed = _update(epoch.admitted, observations)
    kind = "blocked" if compacted else "updated" if changed.changes else "unchanged"
    return changed._replace(kind=kind)


def _update(before: Admitted, observations: list[Observation]) -> Plan:
    texts: list[str] = []
    changes: dict[str, dict[str, Any]] = {}
    admitted: Admitted = {}
    for seen in observations:
        known = before.get(seen.key)
        if known is None:
            if seen.available:
                texts.append(_text(seen, "baseline", seen.value))
                changes[seen.key] = {"to": seen.value}
                admitted[seen.key] = _admit(seen)
        elif not seen.available or _same(known[0], seen.value):
            admitted[seen.key] = known
        else:
            texts.append(_text(seen, "update", known[0], seen.value))
            changes[seen.key] = {"from": known[0], "to": seen.value}
            admitted[seen.key] = _admit(seen)
    present = {seen.key for seen in observations}
    for key, (value, farewell) in before.items():
        if key not in present:
            texts.append(farewell)
            changes[key] = {"from": value}
    return Plan("", admitted, text=_joined(texts), changes=changes)


def public(baseline: str, baseline_seq: int, admitted: Admitted) -> ContextEpoch:
    snapshot = {key: value for key, (value, _) in admitted.items()}
    return ContextEpoch(baseline=baseline, snapshot=snapshot, baseline_seq=baseline_seq)


def _admit(seen: Observation) -> list[Any]:
    return [seen.value, _text(seen, "removed", seen.value)]


def _text(seen: Observation, call: str, *values: Any) -> str:
    text = getattr(seen.source, call)(*values)
    if not isinstance(text, str):
        raise InvalidInput(f"{call} of the context source {seen.key!r} returned no text.")
    return text


def _joined(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def _same(one: Any, other: Any) -> bool:
    """Whether two documents are equal; to Python `True` and 1 are."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
