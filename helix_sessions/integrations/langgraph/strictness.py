"""Which types a saver's serializer builds when it reads what is stored."""

from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.integrations.extras import needed_from

with needed_from("langgraph"):
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

seen: set[bool] = set()
"""Whether the savers that were made here are strict. For the check of a deployment."""


def serializer(serde: SerializerProtocol | None, strict: bool | None) -> SerializerProtocol:
    """The serializer of a saver. `InvalidInput` if it has to be strict and cannot be."""
    if serde is None and strict is None:
        serde = JsonPlusSerializer()
    elif serde is None:
        serde = JsonPlusSerializer(allowed_msgpack_modules=None if strict else True)
    if strict and _builds_anything(serde):
        raise InvalidInput(
            "strict=True needs a serializer that names what it builds: "
            "JsonPlusSerializer(allowed_msgpack_modules=[…]), without pickle."
        )
    seen.add(not _builds_anything(serde))
    return serde


def is_strict() -> bool:
    """Whether all savers that were made here are strict, and before one is made, whether one would be."""
    return all(seen) if seen else not _builds_anything(JsonPlusSerializer())


def _builds_anything(serde: Any) -> bool:
    """Whether a serializer of LangGraph builds any type that is stored. One of the user's own is trusted."""
    if isinstance(serde, EncryptedSerializer):
        return _builds_anything(serde.serde)
    if not isinstance(serde, JsonPlusSerializer):
        return False
    return serde.pickle_fallback or serde._allowed_msgpack_modules is True
