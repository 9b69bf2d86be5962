"""Networks as the `transformers` library makes and saves them."""

from pathlib import Path
from typing import Any

VOCAB = 300
CONTEXT = 256
TOLERANCE = 1e-4


def save_network(shape: str, folder: Path, **changes: Any) -> tuple[Any, Path]:
    """A small random network of this shape, saved as a checkpoint folder without a tokenizer.

    Weights are spread widely (0.25 and not 0.02): with narrow ones the text hardly depends on what
    came before, and a cache of another text would pass.
    """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    common = {"vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None}
    if shape == "gpt2":
        options = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_positions": CONTEXT}
        options |= {"initializer_range": 0.25}
        network = GPT2LMHeadModel(GPT2Config(**common | options | changes))
    else:
        options = {
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "hidden_size": 96,
            "intermediate_size": 200,
            "max_position_embeddings": CONTEXT,
            "initializer_range": 0.15,
            "tie_word_embeddings": True,
        }
        network = LlamaForCausalLM(LlamaConfig(**common | options | changes))
    network.eval().save_pretrained(folder)
    return network, folder


def random_ids(count: int, seed: int = 0, vocab: int = VOCAB) -> list[int]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (count,), generator=generator).tolist()


def their_logits(network: Any, ids: list[int]) -> Any:
    """[len(ids), vocab_size], in one pass of theirs."""
    import torch

    with torch.inference_mode():
        return network(torch.tensor([ids])).logits[0]


def assert_agree(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= TOLERANCE
