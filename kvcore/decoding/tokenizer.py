"""Text to token ids and back, from a checkpoint's own files or from the best stand-in there is."""

import base64
import json
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvcore.decoding.errors import LoadError, PromptError
from kvcore.decoding.storage import write_atomically

if TYPE_CHECKING:
    import tokenizers

END_OF_TEXT = "<|endoftext|>"
GPT2_VOCABULARY = 50_257
HALF_CHARACTER = "\ufffd"
"""What stands for bytes that are no character, or none yet."""


class Tokenizer(Protocol):
    """description: what splits the text, to follow "text is split by"."""

    description: str
    chat_template: str | None

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


class BPETokenizer:
    """A checkpoint's vocabulary, run by the `tokenizers` library."""

    def __init__(
        self,
        tokenizer: "tokenizers.Tokenizer",
        description: str,
        chat_template: str | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.description = description
        self.chat_template = chat_template

    def encode(self, text: str) -> list[int]:
        """Raises PromptError for a text that has no UTF-8 form."""
        _require_utf8(text)
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def save(self, path: Path) -> None:
        self._tokenizer.save(str(path))


class ByteTokenizer:
    """A stand-in where no vocabulary is at hand: the UTF-8 bytes of the text.

    One token a byte, or, for vocabularies under 256, two tokens of four bits or eight of one.
    Tokens that are no byte are shown by their number.
    """

    chat_template = None

    def __init__(self, vocab_size: int) -> None:
        self._bits = 8 if vocab_size >= 256 else 4 if vocab_size >= 16 else 1
        unit = {8: "bytes", 4: "half bytes", 1: "bits"}[self._bits]
        self.description = f"{unit}, for want of a vocabulary"

    def encode(self, text: str) -> list[int]:
        """Raises PromptError for a text that has no UTF-8 form."""
        _require_utf8(text)
        base, shifts = 1 << self._bits, range(8 - self._bits, -1, -self._bits)
        return [(byte >> shift) % base for byte in text.encode() for shift in shifts]

    def decode(self, token_ids: Sequence[int]) -> str:
        parts: list[str] = []
        pending = bytearray()
        digits: list[int] = []

        def flush() -> None:
            parts.append(pending.decode(errors="replace"))
            pending.clear()
            digits.clear()

        for token in token_ids:
            if token >= 1 << self._bits:
                flush()
                parts.append(f"⟨{token}⟩")
                continue
            digits.append(token)
            if len(digits) * self._bits == 8:
                pending.append(sum(d << (8 - self._bits * (i + 1)) for i, d in enumerate(digits)))
                digits.clear()
        flush()
        return "".join(parts)


class GrowingText:
    """The text of a reply as its tokens come, without decoding all of it at each one.

    A character may take several tokens, and some vocabularies write a token differently at the
    beginning of a text. So the newest tokens are decoded together with those before them, and what
    ends in half a character is decoded again with the next.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._settled = ""
        self._before: list[int] = []
        self._newest: list[int] = []
        self.text = ""

    def add(self, token_id: int) -> str:
        """One token more; returns the whole text, which is what decoding all tokens gives."""
        self._newest.append(token_id)
        before = self._decode(self._before)
        grown = self._decode([*self._before, *self._newest])
        self.text = self._settled + grown[len(before) :]
        if len(grown) > len(before) and not grown.endswith(HALF_CHARACTER):
            self._settled, self._before, self._newest = self.text, self._newest, []
        return self.text


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"Character {error.start + 1} of the text is half of a surrogate pair, which no text "
            "can hold on its own; remove it."
        ) from error


def from_folder(folder: Path) -> BPETokenizer | None:
    """The tokenizer in a checkpoint folder; None when there is none, LoadError if damaged."""
    description = "the model's own vocabulary"
    if (folder / "tokenizer.json").is_file():
        return from_file(folder / "tokenizer.json", description, read_chat_template(folder))
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    if not (vocab.is_file() and merges.is_file()):
        return None
    from tokenizers.models import BPE

    try:
        model = BPE.from_file(str(vocab), str(merges))
    except Exception as error:  # the library raises plain Exception
        raise LoadError(f"vocab.json or merges.txt cannot be read ({error}).") from error
    return BPETokenizer(_gpt2_pipeline(model), description)


def from_file(path: Path, description: str, chat_template: str | None = None) -> BPETokenizer:
    """A tokenizer.json, or LoadError."""
    from tokenizers import Tokenizer as Library

    try:
        return BPETokenizer(Library.from_file(str(path)), description, chat_template)
    except Exception as error:  # the library raises plain Exception
        raise LoadError(f"{path.name} cannot be read ({error}).") from error


def read_chat_template(folder: Path) -> str | None:
    """The checkpoint's chat template, if it has one that can be read."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except OSError:
        pass
    try:
        raw = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    template = raw.get("chat_template") if isinstance(raw, dict) else None
    return template if isinstance(template, str) else None


def render_chat(template: str, message: str) -> str:
    """One user message in the model's chat form, up to where its answer begins."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": "user", "content": message}]
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, bos_token="", eos_token=""
        )
    except Exception as error:  # a template is a program and may fail in any way
        raise PromptError(f"The model's chat template cannot be used ({error}).") from error


def stand_in(vocab_size: int, cache: Path) -> Tokenizer:
    """GPT-2's vocabulary from an installed package where it fits, else bytes."""
    if vocab_size == GPT2_VOCABULARY and (ranks := _installed_ranks()) is not None:
        return _gpt2_from_ranks(ranks, cache)
    return ByteTokenizer(vocab_size)


def _installed_ranks() -> Path | None:
    """gpt2.tiktoken, which the mlx-whisper wheel ships; the package itself is never imported."""
    try:
        shipped = files("mlx-whisper") or []
    except PackageNotFoundError:
        return None
    found = [Path(str(f.locate())) for f in shipped if f.name == "gpt2.tiktoken"]
    return next((path for path in found if path.is_file()), None)


def _gpt2_from_ranks(path: Path, cache: Path) -> BPETokenizer:
    description = "GPT-2's vocabulary from the mlx-whisper package"
    stored = cache / "gpt2-tokenizer.json"
    try:
        return from_file(stored, description)
    except LoadError:
        pass  # not stored yet, or damaged
    lines = [line.split() for line in path.read_text().splitlines()]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    built = BPETokenizer(_gpt2_pipeline(_bpe(ranks)), description)
    write_atomically(stored, built.save)
    return built


def _bpe(ranks: dict[bytes, int]) -> Any:
    """The vocabulary of tiktoken's ranks; the pair behind each token is found by merging again."""
    from tokenizers.models import BPE

    letters = _byte_letters()
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = [
        tuple(spelled[part] for part in _parts_before(token, rank, ranks))
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
        if len(token) > 1
    ]
    vocab = {spelled[token]: rank for token, rank in ranks.items()} | {END_OF_TEXT: len(ranks)}
    return BPE(vocab, merges)


def _parts_before(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The two parts that merges of a lower rank leave of `token`."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        joined = [ranks.get(a + b, rank) for a, b in zip(parts, parts[1:], strict=False)]
        best = min(joined)
        at = joined.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _byte_letters() -> list[str]:
    """GPT-2's printable stand-in for each byte: itself where printable, else from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _gpt2_pipeline(model: Any) -> "tokenizers.Tokenizer":
    from tokenizers import AddedToken, decoders, pre_tokenizers
    from tokenizers import Tokenizer as Library

    tokenizer = Library(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True)])
    return tokenizer
