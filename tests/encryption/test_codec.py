"""The codec by itself: what is sealed opens at its own place, under its own key, and nowhere else."""

import json
import os
import pickle

import pytest

from helix_sessions.content import documents
from helix_sessions.content.encryption import Keyring, keyring, open_text
from helix_sessions.exceptions import ContentUnreadable, NotConfigured
from tests.rows import each

PLACE = ("message", "content", "s", 3, 9)
TEXT = '{"role":"user","content":"grüße \\u0000"}'


@pytest.fixture
def ring() -> Keyring:
    return Keyring({"a": os.urandom(32), "b": os.urandom(32)}, "a")


def test_what_is_sealed_opens_exactly(ring):
    sealed = ring.seal(PLACE, TEXT)
    assert ring.open(PLACE, sealed) == TEXT
    assert isinstance(json.loads(sealed), str)  # PostgreSQL's json column takes it
    assert sealed.startswith(' "1.a.')


def test_the_same_text_is_sealed_differently_each_time(ring):
    assert len({ring.seal(PLACE, TEXT) for _ in range(100)}) == 100


@each(
    "elsewhere",
    [
        ("event", "content", "s", 3, 9),
        ("message", "data", "s", 3, 9),
        ("message", "content", "t", 3, 9),
        ("message", "content", "s", 4, 9),
        ("message", "content", "s", 3, 10),
        ("message", "content", "s", 39),
    ],
)
def test_it_opens_nowhere_else(ring, elsewhere):
    with pytest.raises(ContentUnreadable, match="changed, moved or damaged") as caught:
        ring.open(elsewhere, ring.seal(PLACE, TEXT))
    assert caught.value.key_id == "a"


@each("at", [12, 20, -2])
def test_damage_is_noticed(ring, at):
    sealed = list(ring.seal(PLACE, TEXT))
    sealed[at] = "A" if sealed[at] != "A" else "B"
    with pytest.raises(ContentUnreadable):
        ring.open(PLACE, "".join(sealed))


@each("text", [" ", ' "', ' ""', ' "1.a"', ' "1.a."', ' "1.a.???"', ' "1.a.AAAA"', ' "9.a.AAAA"'])
def test_what_was_never_sealed_is_refused(ring, text):
    with pytest.raises(ContentUnreadable):
        ring.open(PLACE, text)


def test_another_installations_key_of_the_same_name_does_not_open(ring):
    other = Keyring({"a": os.urandom(32)}, "a")
    with pytest.raises(ContentUnreadable):
        other.open(PLACE, ring.seal(PLACE, TEXT))


def test_a_key_that_is_not_configured_is_named(ring):
    other = Keyring({"c": os.urandom(32)}, "c")
    with pytest.raises(ContentUnreadable, match="key 'a', which is not configured"):
        other.open(PLACE, ring.seal(PLACE, TEXT))


def test_without_any_key_sealed_text_is_not_taken_for_a_document(ring, encrypted):
    sealed = ring.seal(PLACE, TEXT)
    encrypted()
    assert keyring() is None
    with pytest.raises(ContentUnreadable):
        open_text(PLACE, sealed)
    with pytest.raises(ValueError, match="sealed"):
        documents.load(sealed)


def test_without_an_active_key_text_stays_as_it_is(ring):
    assert Keyring(ring.keys, None).seal(PLACE, TEXT) == TEXT
    assert Keyring(ring.keys, None).open(PLACE, ring.seal(PLACE, TEXT)) == TEXT


def test_a_veiled_digest_comes_back_and_tells_nothing(ring):
    digest = documents.digest("yes")
    veiled = ring.veil("s", digest)
    assert len(veiled) <= 32
    assert ring.unveil("s", veiled) == digest
    assert ring.veil("t", digest) != veiled != Keyring(ring.keys, "b").veil("s", digest)
    assert Keyring(ring.keys, "b").unveil("s", veiled) == digest
    assert Keyring({"b": ring.keys["b"]}, "b").unveil("s", veiled) == veiled  # unknown: equals no digest
    assert ring.veil("s", "") == ""


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(ContentUnreadable("why", key_id="a")))
    assert (str(error), error.key_id, error.code) == ("why", "a", "content_unreadable")


GOOD = "A" * 43 + "="


@each(
    ("given", "said"),
    [
        ({"keys": {}}, "dict of keys"),
        ({"keys": {"a": "short"}, "active": "a"}, "32 bytes"),
        ({"keys": {"a": 5}, "active": "a"}, "32 bytes"),
        ({"keys": {"a b": GOOD}, "active": "a b"}, "1 to 32 letters"),
        ({"keys": {"a": GOOD}, "active": "b"}, "one of the keys"),
        ({"keys": "no.such.function", "active": "a"}, "cannot be imported"),
        ({"keys": {"a": GOOD}, "activ": "a"}, "unknown key"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, given, said):
    settings.HELIX_SESSIONS = {"ENCRYPTION": given}
    with pytest.raises(NotConfigured, match=said) as caught:
        keyring()
    assert GOOD not in str(caught.value)


def keys_from_a_vault() -> dict[str, str]:
    return {"vault": GOOD}


def test_keys_may_come_from_a_function(settings):
    settings.HELIX_SESSIONS = {"ENCRYPTION": {"keys": f"{__name__}.keys_from_a_vault", "active": "vault"}}
    ring = keyring()
    assert ring is not None
    assert ring.active == "vault"
