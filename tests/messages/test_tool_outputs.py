"""Long results of tools keep their beginning and end, and say what was cut."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.messages.tool_outputs import SMALLEST_LIMIT, cut_output, cut_outputs

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_what_fits_stays_as_it_is() -> None:
    for content in ("short", {"a": 1}, None, ["x"], "é" * 250):
        assert cut_output(content, 500) is content, content


def test_head_and_tail_are_kept_and_the_cut_is_said() -> None:
    cut = cut_output("BEGIN " + "x" * 10_000 + " END", 1_000)
    assert cut.startswith("BEGIN xxx")
    assert cut.endswith("xxx END")
    assert "of 10,010 bytes were cut here" in cut
    assert len(cut.encode()) <= 1_000


def test_a_document_is_cut_as_json() -> None:
    cut = cut_output({"rows": ["x" * 10_000]}, 1_000)
    assert cut.startswith('{"rows":["xxx')
    assert cut.endswith('xxx"]}')


def test_an_image_stays_whole_and_the_texts_beside_it_share_the_limit() -> None:
    image = {"type": "image", "data": "x" * 5_000}
    texts = [{"type": "text", "text": letter * 900} for letter in "ab"]
    assert cut_output([image], 1_000) == [image]
    cut = cut_output([texts[0], image, texts[1], {"rows": "c" * 900}], 1_000)
    assert cut[1] is image
    assert [block["type"] for block in cut] == ["text", "image", "text", "text"]
    assert sum(len(block["text"]) for block in cut if block["type"] == "text") <= 1_000


@given(st.text(min_size=150) | JSON_VALUES, st.integers(0, 2_000))
def test_the_limit_holds_and_cutting_twice_is_cutting_once(content: Any, limit: int) -> None:
    cut = cut_output(content, limit)
    text = cut if isinstance(cut, str) else json.dumps(cut, ensure_ascii=False, separators=(",", ":"))
    assert len(text.encode()) <= max(limit, SMALLEST_LIMIT)
    assert cut_output(cut, limit) is cut


@given(st.text(st.sampled_from("aé漢🎉"), min_size=500), st.integers(200, 600))
def test_no_character_is_parted(text: str, limit: int) -> None:
    cut = cut_output(text, limit)
    head, _, rest = cut.partition("\n\n[")
    assert text.startswith(head)
    if rest:
        assert text.endswith(rest.partition("]\n\n")[2])


def test_results_are_found_in_messages() -> None:
    long, cut = "x" * 500, cut_output("x" * 500, 200)
    block = {"type": "tool_result", "tool_use_id": "1", "content": long}
    said = {"type": "text", "text": long}
    rows = [
        ({"role": "tool", "tool_call_id": "1", "content": long}, cut),
        ({"role": "user", "content": [block, said]}, [{**block, "content": cut}, said]),
        ({"role": "user", "content": long}, long),
        ({"role": "assistant", "content": long}, long),
    ]
    item = {"role": "tool", "tool_call_id": "1", "item": {"type": "function_call_output", "output": long}}
    assert cut_outputs(item, 200)["item"]["output"] == cut
    part = {"part_kind": "tool-return", "content": long}
    stored = {"role": "tool", "message": {"parts": [part, {"part_kind": "user-prompt", "content": long}]}}
    parts = cut_outputs(stored, 200)["message"]["parts"]
    assert [part["content"] for part in parts] == [cut, long]
    for message, content in rows:
        assert cut_outputs(message, 200)["content"] == content, message
    for message in (
        {"role": "tool"},
        {"role": "tool", "content": "short"},
        {"role": "user", "content": [said]},
        5,
    ):
        assert cut_outputs(message, 200) is message, message
