"""GPT-2's forward pass (Radford et al. 2019), with the cache in plain sight.

Names follow the checkpoint: wte and wpe are the token and position embeddings, c_attn makes
queries, keys and values in one product, c_proj brings heads or the MLP back to the hidden size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch.nn.functional as F
from torch import Tensor

from kvcore.decoding.config import GPT2Config
from kvcore.decoding.errors import LoadError
from kvcore.decoding.layers import Matrix, Pass
from kvcore.decoding.tensors import Tensors

CHECKPOINT_PREFIXES = ("transformer.",)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass
class LayerNorm:
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


@dataclass
class Block:
    ln_1: LayerNorm
    c_attn: Matrix
    attn_proj: Matrix
    ln_2: LayerNorm
    c_fc: Matrix
    mlp_proj: Matrix


class GPT2:
    frequencies = None  # positions are learned, not rotary

    def __init__(self, config: GPT2Config, tensors: Tensors) -> None:
        if config.activation not in ACTIVATIONS:
            raise LoadError(
                f"activation_function {config.activation!r} is not supported here; "
                f"{', '.join(ACTIVATIONS)} are."
            )
        self.config = config
        self.activation = ACTIVATIONS[config.activation]
        d, vocab = config.hidden_size, config.vocab_size
        self.wpe = tensors.take("wpe.weight", config.context_length, d)
        embedding = Matrix(tensors.take("wte.weight", vocab, d))
        self.wte = embedding.rows
        self.head = embedding
        if not config.tied_head:
            self.head = Matrix(tensors.take("lm_head.weight", vocab, d))
        self.blocks = [self._block(tensors, layer) for layer in range(config.num_layers)]
        self.ln_f = self._norm(tensors, "ln_f")

    def _norm(self, tensors: Tensors, name: str) -> LayerNorm:
        d = self.config.hidden_size
        weight, bias = tensors.take(f"{name}.weight", d), tensors.take(f"{name}.bias", d)
        return LayerNorm(weight, bias, self.config.norm_epsilon)

    def _block(self, tensors: Tensors, layer: int) -> Block:
        d, inner = self.config.hidden_size, self.config.inner_size

        def matrix(name: str, in_features: int, out_features: int) -> Matrix:
            name = f"h.{layer}.{name}"
            weight = tensors.take(f"{name}.weight", in_features, out_features)
            return Matrix(weight.t(), tensors.take(f"{name}.bias", out_features))

        return Block(
            ln_1=self._norm(tensors, f"h.{layer}.ln_1"),
            c_attn=matrix("attn.c_attn", d, 3 * d),
            attn_proj=matrix("attn.c_proj", d, d),
            ln_2=self._norm(tensors, f"h.{layer}.ln_2"),
            c_fc=matrix("mlp.c_fc", d, inner),
            mlp_proj=matrix("mlp.c_proj", inner, d),
        )

    def hidden(self, run: Pass) -> Tensor:
        """The new tokens through all blocks: [n, hidden_size]."""
        num_heads, head_dim = self.config.num_heads, self.config.head_dim
        x = self.wte[run.tokens] + self.wpe[run.positions]
        for layer, block in enumerate(self.blocks):
            qkv = block.c_attn(block.ln_1(x)).view(-1, 3, num_heads, head_dim)
            queries, keys, values = qkv.unbind(dim=1)
            if self.config.scale_by_layer:
                queries = queries / (layer + 1)
            x = x + block.attn_proj(run.attend(layer, queries, keys, values))
            x = x + block.mlp_proj(self.activation(block.c_fc(block.ln_2(x))))
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, hidden_size] → [n, vocab_size]"""
        return self.head(self.ln_f(hidden))

    def checkpoint(self) -> dict[str, Tensor]:
        """The weights under the checkpoint's names and in its layout, as views."""
        tensors = {"transformer.wte.weight": self.wte, "transformer.wpe.weight": self.wpe}
        tensors["lm_head.weight"] = self.head.rows
        tensors |= _with_bias("transformer.ln_f", self.ln_f.weight, self.ln_f.bias)
        for i, block in enumerate(self.blocks):
            name = f"transformer.h.{i}"
            for norm in ("ln_1", "ln_2"):
                layer_norm = getattr(block, norm)
                tensors |= _with_bias(f"{name}.{norm}", layer_norm.weight, layer_norm.bias)
            for part, matrix in (
                ("attn.c_attn", block.c_attn),
                ("attn.c_proj", block.attn_proj),
                ("mlp.c_fc", block.c_fc),
                ("mlp.c_proj", block.mlp_proj),
            ):
                tensors |= _with_bias(f"{name}.{part}", matrix.rows.t(), matrix.bias)
        return tensors

    @property
    def matrices(self) -> list[Matrix]:
        """Every matrix that a token is multiplied by, in that order."""
        in_blocks = (
            (block.c_attn, block.attn_proj, block.c_fc, block.mlp_proj) for block in self.blocks
        )
        return [*chain.from_iterable(in_blocks), self.head]

    @property
    def weight_bytes_read(self) -> int:
        """Bytes of weights that one decode step reads: all matrices once, one row of wpe.

        The tied embedding is counted once, as the output matrix.
        """
        norms = [self.ln_f, *chain.from_iterable((b.ln_1, b.ln_2) for b in self.blocks)]
        norm_bytes = sum(norm.weight.nbytes + norm.bias.nbytes for norm in norms)
        return sum(matrix.nbytes for matrix in self.matrices) + norm_bytes + self.wpe[0].nbytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights held in memory."""
        untied = 0 if self.config.tied_head else self.wte.nbytes
        return self.weight_bytes_read + self.wpe[1:].nbytes + untied


def _with_bias(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {f"{name}.weight": weight, f"{name}.bias": bias}
