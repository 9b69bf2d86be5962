"""The pool of a named model on a named GPU, by the calculator's own arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kvcore.architecture import LayerKind
from kvcore.capacity import Deployment, weight_bytes
from kvcore.catalog import GPUS, MODELS, Model
from kvcore.units import gib

# What vLLM 0.33 takes of a GPU unless told otherwise, and a round figure for what else it holds.
UTILISATION = 0.92
OVERHEAD_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class NamedPool:
    """KV slots of one copy of a model; bytes are per GPU.

    `tensor_bytes` is a token's share of one layer's K (or V) tensor, what large pages count in.
    """

    num_slots: int
    free_bytes: int
    weights_bytes: int
    bytes_per_slot: int
    tensor_bytes: int


@cache
def pooled_models() -> tuple[str, ...]:
    """Models whose every layer keeps K and V of every token: one pool of slots describes them."""
    return tuple(name for name, model in MODELS.items() if model.parameters and _keeps_all(model))


def named_pool(model: str, gpu: str, num_gpus: int = 1) -> NamedPool:
    """What remains for the cache in 16 bits, tensor-parallel over `num_gpus`, in slots.

    Raises ValueError when the weights leave no room or the model has no single pool of slots.
    """
    if model not in pooled_models():
        raise ValueError(f"{model} keeps more than K and V of every token in one pool.")
    entry = MODELS[model]
    deployment = Deployment(
        architecture=entry.architecture,
        memory_bytes=GPUS[gpu].memory_bytes,
        weights_bytes=weight_bytes(entry.parameters),
        overhead_bytes=OVERHEAD_BYTES,
        utilisation=UTILISATION,
        tensor_parallel=num_gpus,
    )
    (stage,) = deployment.stages
    per_slot = entry.architecture.growth_bytes("bf16", num_gpus)
    if stage.free_bytes < per_slot:
        where = gpu if num_gpus == 1 else f"{num_gpus} × {gpu}"
        raise ValueError(
            f"The weights of {model} take {gib(stage.weights_bytes)} of each GPU and leave no room "
            f"for a cache on {where}; choose a larger GPU or more of them."
        )
    return NamedPool(
        num_slots=stage.free_bytes // per_slot,
        free_bytes=stage.free_bytes,
        weights_bytes=stage.weights_bytes,
        bytes_per_slot=per_slot,
        tensor_bytes=per_slot // (2 * entry.architecture.num_layers),
    )


def _keeps_all(model: Model) -> bool:
    return all(group.kind is LayerKind.FULL for group in model.architecture.layers)
