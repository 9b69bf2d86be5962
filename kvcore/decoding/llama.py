"""The forward pass of Llama-shaped models (Touvron et al. 2023, arXiv:2302.13971).

Differences from GPT-2: rotary positions instead of learned ones, RMSNorm, a gated MLP, and several
query heads sharing one key-value head (grouped-query attention, Ainslie et al. 2023).
"""

from dataclasses import dataclass
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from kvcore.decoding.config import LlamaConfig
from kvcore.decoding.layers import Matrix, Pass
from kvcore.decoding.rotary import angles, inverse_frequencies, rotate
from kvcore.decoding.tensors import Tensors

CHECKPOINT_PREFIXES = ("model.",)


@dataclass
class RMSNorm:
    weight: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


@dataclass
class Block:
    attention_norm: RMSNorm
    qkv: Matrix
    attention_out: Matrix
    mlp_norm: RMSNorm
    gate_up: Matrix
    down: Matrix


class Llama:
    def __init__(self, config: LlamaConfig, tensors: Tensors) -> None:
        self.config = config
        self.frequencies = inverse_frequencies(
            config.head_dim, config.rope_theta, config.rope_scaling
        )
        d, vocab = config.hidden_size, config.vocab_size
        embedding = Matrix(tensors.take("embed_tokens.weight", vocab, d))
        self.embed_tokens = embedding.rows
        self.head = embedding
        if not config.tied_head:
            self.head = Matrix(tensors.take("lm_head.weight", vocab, d))
        self.blocks = [self._block(tensors, f"layers.{i}") for i in range(config.num_layers)]
        self.norm = self._norm(tensors, "norm")

    def _norm(self, tensors: Tensors, name: str) -> RMSNorm:
        return RMSNorm(
            tensors.take(f"{name}.weight", self.config.hidden_size), self.config.norm_epsilon
        )

    def _block(self, tensors: Tensors, name: str) -> Block:
        c = self.config
        d, q_size, kv_size = c.hidden_size, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim

        def stacked(in_features: int, parts: dict[str, int]) -> Matrix:
            """Matrices with the same input as one, so that decoding makes one product of them."""
            weights = [tensors.take(f"{name}.{p}.weight", n, in_features) for p, n in parts.items()]
            biased = [p for p in parts if f"{name}.{p}.bias" in tensors]
            biases = [
                tensors.take(f"{name}.{p}.bias", n) if p in biased else torch.zeros(n)
                for p, n in parts.items()
            ]
            return Matrix(torch.cat(weights), torch.cat(biases) if biased else None)

        attention = "self_attn"
        return Block(
            attention_norm=self._norm(tensors, f"{name}.input_layernorm"),
            qkv=stacked(
                d,
                {
                    f"{attention}.q_proj": q_size,
                    f"{attention}.k_proj": kv_size,
                    f"{attention}.v_proj": kv_size,
                },
            ),
            attention_out=stacked(q_size, {f"{attention}.o_proj": d}),
            mlp_norm=self._norm(tensors, f"{name}.post_attention_layernorm"),
            gate_up=stacked(d, {"mlp.gate_proj": c.inner_size, "mlp.up_proj": c.inner_size}),
            down=stacked(c.inner_size, {"mlp.down_proj": d}),
        )

    def hidden(self, run: Pass) -> Tensor:
        """The new tokens through all blocks: [n, hidden_size]."""
        num_heads, num_kv_heads = self.config.num_heads, self.config.num_kv_heads
        cos, sin = (x[:, None, :] for x in angles(run.positions, self.frequencies))
        x = self.embed_tokens[run.tokens]
        for layer, block in enumerate(self.blocks):
            qkv = block.qkv(block.attention_norm(x)).view(run.num_new, -1, self.config.head_dim)
            queries, keys, values = qkv.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
            queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)
            x = x + block.attention_out(run.attend(layer, queries, keys, values))
            gate, up = block.gate_up(block.mlp_norm(x)).chunk(2, dim=-1)
            x = x + block.down(F.silu(gate) * up)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, hidden_size] → [n, vocab_size]"""
        return self.head(self.norm(hidden))

    def checkpoint(self) -> dict[str, Tensor]:
        """The weights under the checkpoint's names and in its layout, as views."""
        c = self.config
        q_size, kv_size = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        tensors = {
            "model.embed_tokens.weight": self.embed_tokens,
            "lm_head.weight": self.head.rows,
            "model.norm.weight": self.norm.weight,
        }
        for i, block in enumerate(self.blocks):
            name = f"model.layers.{i}"
            tensors[f"{name}.input_layernorm.weight"] = block.attention_norm.weight
            tensors[f"{name}.post_attention_layernorm.weight"] = block.mlp_norm.weight
            for matrix, parts in (
                (block.qkv, {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}),
                (block.attention_out, {"o_proj": c.hidden_size}),
            ):
                tensors |= _split(f"{name}.self_attn", matrix, parts)
            gate_up = {"gate_proj": c.inner_size, "up_proj": c.inner_size}
            tensors |= _split(f"{name}.mlp", block.gate_up, gate_up)
            tensors |= _split(f"{name}.mlp", block.down, {"down_proj": c.hidden_size})
        return tensors

    @property
    def matrices(self) -> list[Matrix]:
        """Every matrix that a token is multiplied by, in that order."""
        in_blocks = (
            (block.qkv, block.attention_out, block.gate_up, block.down) for block in self.blocks
        )
        return [*chain.from_iterable(in_blocks), self.head]

    @property
    def weight_bytes_read(self) -> int:
        """Bytes of weights that one decode step reads: all matrices and norms once."""
        in_blocks = ((block.attention_norm, block.mlp_norm) for block in self.blocks)
        norms = [self.norm, *chain.from_iterable(in_blocks)]
        matrix_bytes = sum(matrix.nbytes for matrix in self.matrices)
        return matrix_bytes + sum(norm.weight.nbytes for norm in norms)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights held in memory."""
        untied = 0 if self.config.tied_head else self.embed_tokens.nbytes
        return self.weight_bytes_read + untied


def _split(name: str, matrix: Matrix, parts: dict[str, int]) -> dict[str, Tensor]:
    """A stacked matrix taken apart again."""
    sizes = list(parts.values())
    names = [f"{name}.{part}" for part in parts]
    tensors = {f"{n}.weight": w for n, w in zip(names, matrix.rows.split(sizes), strict=True)}
    if matrix.bias is not None:
        tensors |= {f"{n}.bias": b for n, b in zip(names, matrix.bias.split(sizes), strict=True)}
    return tensors
