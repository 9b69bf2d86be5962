"""Is there room for a model before it is loaded?"""

import math
from pathlib import Path

from kvcore.decoding.config import Config, GPT2Config
from kvcore.decoding.errors import NoRoomError

WORKING_BYTES = 200 * 2**20  # activations of a long prompt, the cache, the tensor being laid out


def parameter_count(config: Config) -> int:
    """Numbers in the weights, a tied output matrix counted once."""
    d, inner, layers = config.hidden_size, config.inner_size, config.num_layers
    embeddings = config.vocab_size * d * (1 if config.tied_head else 2)
    if isinstance(config, GPT2Config):
        block = 4 * d * d + 2 * d * inner + 9 * d + inner
        return embeddings + config.context_length * d + layers * block + 2 * d
    attention = d * config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads)
    return embeddings + layers * (attention + 3 * d * inner + 2 * d) + d


def bytes_needed(config: Config) -> int:
    """Bytes that loading takes: the weights in fp32, the largest matrix twice, and room to work."""
    largest = config.vocab_size * config.hidden_size * 4
    return parameter_count(config) * 4 + largest + WORKING_BYTES


def available_bytes() -> int | None:
    """Memory this process can still take: of the machine or its container, None if not known."""
    known = [b for b in (_machine(), _container()) if b is not None]
    return min(known, default=None)


def require_room(title: str, config: Config) -> None:
    """NoRoomError when the model does not fit into the memory that is free now."""
    needed, available = bytes_needed(config), available_bytes()
    if available is not None and needed > available:
        raise NoRoomError(
            f"{title} needs {_gib(needed)} of memory and {_gib(available)} are free; "
            "close something or choose a smaller model."
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container() -> int | None:
    """Limit minus use of the control group (v2, then v1); file pages in use can be given back."""
    places = (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    )
    for folder, limit_name, used_name, reclaimable_name in places:
        try:
            limit = float((Path(folder) / limit_name).read_text().replace("max", "inf"))
            used = int((Path(folder) / used_name).read_text())
            stat = (Path(folder) / "memory.stat").read_text().split()
        except (OSError, ValueError):
            continue
        if math.isinf(limit):
            return None
        reclaimable = dict(zip(stat[::2], stat[1::2], strict=False)).get(reclaimable_name, 0)
        return max(0, int(limit) - used + int(reclaimable))
    return None
