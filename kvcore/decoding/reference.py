"""The `transformers` library's own cached step on the same weights, to compare speed with."""

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvcore.decoding.config import GPT2Config
from kvcore.decoding.errors import LoadError
from kvcore.decoding.generate import Clock

if TYPE_CHECKING:
    from kvcore.decoding.model import Model


def is_available() -> bool:
    return find_spec("transformers") is not None


class TransformersSteps:
    """`transformers`' model, its DynamicCache, and the time each of its steps takes.

    The weights are those of `model`, in the layout of the checkpoint; where that differs from the
    layout for decoding they are copied, so this takes up to the model's size in memory while it
    lives. Raises LoadError when transformers is not installed.
    """

    def __init__(self, model: "Model", clock: Clock = time.perf_counter) -> None:
        if not is_available():
            raise LoadError("The transformers package is not installed, so there is no reference.")
        self._clock = clock
        self.network = _same_network(model)
        self.restart()

    def restart(self) -> None:
        """Forget the text run so far."""
        self._cache = None

    @torch.inference_mode()
    def step(self, new_ids: Sequence[int]) -> tuple[Tensor, float]:
        """Run tokens behind those run before; logits of the last ([vocab_size]) and seconds."""
        ids = torch.tensor([list(new_ids)])
        began = self._clock()
        out = self.network(ids, cache=self._cache, use_cache=True, logits_to_keep=1)
        seconds = self._clock() - began
        self._cache = out.cache
        return out.logits[0, -1], seconds


def _same_network(model: "Model") -> Any:
    c = model.config
    if isinstance(c, GPT2Config):
        from transformers import GPT2Config as TheirConfig
        from transformers import GPT2LMHeadModel as Network

        config = TheirConfig(
            n_layer=c.num_layers,
            n_head=c.num_heads,
            n_embd=c.hidden_size,
            n_inner=c.inner_size,
            vocab_size=c.vocab_size,
            n_positions=c.context_length,
            layer_norm_epsilon=c.norm_epsilon,
            activation_function=c.activation,
            scale_attn_by_inverse_layer_idx=c.scale_by_layer,
            tie_word_embeddings=c.tied_head,
            bos_token_id=None,
            eos_token_id=None,
        )
    else:
        from transformers import LlamaConfig as TheirConfig
        from transformers import LlamaForCausalLM as Network

        config = TheirConfig(
            num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_heads,
            num_key_value_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            hidden_size=c.hidden_size,
            intermediate_size=c.inner_size,
            vocab_size=c.vocab_size,
            max_position_embeddings=c.context_length,
            rms_norm_eps=c.norm_epsilon,
            rope_parameters={"rope_type": "default", **c.rope_scaling, "rope_theta": c.rope_theta},
            attention_bias=model.network.blocks[0].qkv.bias is not None,
            tie_word_embeddings=c.tied_head,
            bos_token_id=None,
            eos_token_id=None,
        )
    weights = {name: tensor.contiguous() for name, tensor in model.network.checkpoint().items()}
    network = Network.from_pretrained(None, config=config, state_dict=weights)
    return network.eval()
