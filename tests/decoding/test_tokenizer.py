"""Text to ids and back: the stand-ins, any Unicode, and what no text can hold."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.decoding.errors import PromptError
from kvcore.decoding.storage import write_atomically
from kvcore.decoding.tokenizer import ByteTokenizer, GrowingText, render_chat, stand_in

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="session")
def gpt2_vocabulary(tmp_path_factory):
    try:
        distribution("mlx-whisper")
    except PackageNotFoundError:
        pytest.skip("the mlx-whisper package is not installed")
    return stand_in(50_257, tmp_path_factory.mktemp("vocabulary"))


@pytest.mark.parametrize(
    ("text", "ids"),
    # the published vocabulary's ids
    [
        ("Hello world", [15496, 995]),
        ("Once upon a time", [7454, 2402, 257, 640]),
        ("<|endoftext|>", [50256]),
        ("", []),
    ],
)
def test_gpt2_ids(gpt2_vocabulary, text, ids):
    assert gpt2_vocabulary.encode(text) == ids
    assert gpt2_vocabulary.decode(ids) == text


@given(text=TEXTS)
def test_gpt2_gives_back_any_unicode(gpt2_vocabulary, text):
    assert gpt2_vocabulary.decode(gpt2_vocabulary.encode(text)) == text


def grown(decode, ids):
    text = GrowingText(decode)
    return [text.add(each) for each in ids]


def decoded(decode, ids):
    return [decode(ids[: count + 1]) for count in range(len(ids))]


@given(text=TEXTS)
def test_a_growing_text_is_at_each_token_what_decoding_all_of_them_gives(gpt2_vocabulary, text):
    decode = gpt2_vocabulary.decode
    ids = gpt2_vocabulary.encode(text)
    assert grown(decode, ids) == decoded(decode, ids)


@given(ids=st.lists(st.integers(0, 50_256), max_size=40))
def test_so_is_one_of_tokens_that_fit_no_text(gpt2_vocabulary, ids):
    assert grown(gpt2_vocabulary.decode, ids) == decoded(gpt2_vocabulary.decode, ids)


@given(vocab_size=st.sampled_from([2, 16, 256, 300]), data=st.data())
def test_so_is_one_of_bytes(vocab_size, data):
    decode = ByteTokenizer(vocab_size).decode
    ids = data.draw(st.lists(st.integers(0, vocab_size - 1), max_size=60))
    assert grown(decode, ids) == decoded(decode, ids)


def test_characters_of_several_tokens_grow_whole(gpt2_vocabulary):
    text = "漢字🧠"
    ids = gpt2_vocabulary.encode(text)
    assert len(ids) > len(text)
    assert grown(gpt2_vocabulary.decode, ids)[-1] == text


def test_a_growing_text_decodes_few_tokens_at_a_time(gpt2_vocabulary):
    ids = gpt2_vocabulary.encode("The cat sat on the naïve mat, 漢字. " * 50)
    lengths = []

    def decode(some):
        lengths.append(len(some))
        return gpt2_vocabulary.decode(some)

    assert grown(decode, ids)[-1] == gpt2_vocabulary.decode(ids)
    assert max(lengths) <= 8


def test_a_space_that_only_the_beginning_of_a_text_drops_is_kept():
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {"▁a": 0, "▁card": 1, "s": 2}
    library = Tokenizer(models.BPE(vocabulary, []))
    library.decoder = decoders.Metaspace()
    assert grown(library.decode, [0, 1, 2])[-1] == library.decode([0, 1, 2]) == "a cards"


def test_the_rebuilt_vocabulary_is_kept_and_rebuilt_when_damaged(gpt2_vocabulary, tmp_path):
    kept = tmp_path / "gpt2-tokenizer.json"
    kept.write_text("{")
    text = "The 1,000th naïve façade — 日本"
    rebuilt, read_again = stand_in(50_257, tmp_path), stand_in(50_257, tmp_path)
    assert len(kept.read_bytes()) > 1_000_000
    assert rebuilt.encode(text) == read_again.encode(text) == gpt2_vocabulary.encode(text)


@pytest.mark.parametrize("vocab_size", [2, 16, 100, 256, 300])
@given(text=TEXTS)
def test_bytes_give_back_any_unicode_within_any_vocabulary(vocab_size, text):
    tokenizer = ByteTokenizer(vocab_size)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= token_id < vocab_size for token_id in ids)


def test_tokens_that_are_no_byte_show_their_number():
    assert ByteTokenizer(300).decode([104, 105, 299]) == "hi⟨299⟩"
    assert "for want of a vocabulary" in ByteTokenizer(300).description


def test_half_a_surrogate_pair_is_refused_in_one_sentence(gpt2_vocabulary):
    for tokenizer in (gpt2_vocabulary, ByteTokenizer(256)):
        with pytest.raises(PromptError, match="Character 3 of the text"):
            tokenizer.encode("ab\ud800")


def test_a_chat_template_cannot_reach_out():
    assert render_chat("{{ messages[0].content }}!", "hi") == "hi!"
    for template in ("{{ ''.__class__.__mro__ }}", "{% for %}", "{{ 1 / 0 }}"):
        with pytest.raises(PromptError, match="chat template"):
            render_chat(template, "hi")


def test_nothing_half_written_is_left(tmp_path):
    def fail(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    assert write_atomically(tmp_path / "file", fail) is False
    assert list(tmp_path.iterdir()) == []
