import json

from hypothesis import given
from hypothesis import strategies as st

from kvcore.json_text import loads

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_what_is_read_can_be_written(value, escaped):
    text = json.dumps(value, ensure_ascii=escaped)
    read = loads(text)
    written = json.dumps(read, ensure_ascii=False).encode()
    assert written == json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")


def test_whole_characters_stay_as_they_are():
    assert loads(r'{"a": "\ud83d\ude00", "b": "\ud83d"}') == {"a": "\N{GRINNING FACE}", "b": "?"}
