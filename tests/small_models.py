"""Small seeded networks of both shapes, with logits wide enough that a wrong cache shows."""

from __future__ import annotations

from functools import cache

from kvcore.decoding.config import GPT2Config, LlamaConfig

SHAPES = ("gpt2", "llama")


class Characters:
    """A tokenizer of one token a byte."""

    description = "bytes"
    is_stand_in = True
    chat_template = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids) -> str:
        return bytes(token_id % 256 for token_id in token_ids).decode("latin-1")


@cache
def small_model(shape: str, seed: int = 0):
    from kvcore.decoding.gpt2 import GPT2
    from kvcore.decoding.llama import Llama
    from kvcore.decoding.model import Model
    from kvcore.decoding.tensors import RandomTensors

    tensors = RandomTensors(seed, 0.25)
    if shape == "gpt2":
        config = GPT2Config(3, 4, 32, 128, 256, 512)
        network = GPT2(config, tensors)
    else:
        config = LlamaConfig(3, 4, 2, 8, 32, 64, 256, 512)
        network = Llama(config, tensors)
    return Model(f"small {shape}", network, Characters(), "random")


@cache
def deep_model(num_layers: int):
    """A thin Llama shape with many layers."""
    from kvcore.decoding.llama import Llama
    from kvcore.decoding.model import Model
    from kvcore.decoding.tensors import RandomTensors

    config = LlamaConfig(num_layers, 2, 1, 8, 16, 32, 256, 1_024)
    return Model(
        f"{num_layers} layers", Llama(config, RandomTensors(0, 0.25)), Characters(), "random"
    )
