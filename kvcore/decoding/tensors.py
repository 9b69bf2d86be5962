"""Where a network's weights come from: a folder of safetensors, or a seeded random generator."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from kvcore.decoding.errors import LoadError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class Tensors(Protocol):
    """Weights by their name in the checkpoint."""

    def take(self, name: str, *shape: int) -> Tensor:
        """A fresh fp32 tensor of exactly this shape, or LoadError."""

    def __contains__(self, name: str) -> bool: ...


class RandomTensors:
    """Seeded normal weights; norms start at one and biases at zero, as when training begins."""

    def __init__(self, seed: int = 0, deviation: float = 0.02) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._deviation = deviation

    def take(self, name: str, *shape: int) -> Tensor:
        if name.endswith(".bias"):
            return torch.zeros(shape)
        if len(shape) == 1:
            return torch.ones(shape)
        return torch.empty(shape).normal_(0, self._deviation, generator=self._generator)

    def __contains__(self, name: str) -> bool:
        return False


class FolderTensors:
    """Weights of a checkpoint folder, read one at a time to keep memory low."""

    def __init__(self, folder: Path, prefixes: tuple[str, ...]) -> None:
        """prefixes: what the names may begin with in front of the bare ones; "" is always tried."""
        self._file_of: dict[str, Path] = {}
        for path in weight_files(folder):
            for name in _names(path):
                self._file_of[name] = path
        self._prefixes = ("", *prefixes)

    def take(self, name: str, *shape: int) -> Tensor:
        full_name = self._full_name(name)
        if full_name is None:
            raise LoadError(f"The weights have no tensor {name!r}, so they are not of this model.")
        tensor = _read(self._file_of[full_name], lambda file: file.get_tensor(full_name))
        if tuple(tensor.shape) != shape:
            raise LoadError(
                f"Tensor {name!r} has shape {list(tensor.shape)}, but config.json asks for "
                f"{list(shape)}."
            )
        return tensor.to(torch.float32, copy=True)

    def __contains__(self, name: str) -> bool:
        return self._full_name(name) is not None

    def _full_name(self, name: str) -> str | None:
        return next((p + name for p in self._prefixes if p + name in self._file_of), None)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, or LoadError when it has none it can name."""
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    index = folder / INDEX_FILE
    if not index.is_file():
        raise LoadError(
            f"{folder.name} holds no {SINGLE_FILE}, and weights are read from no other format."
        )
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise LoadError(f"{INDEX_FILE} cannot be read ({error}).") from error
    missing = next((name for name in names if not (folder / Path(name).name).is_file()), None)
    if missing is not None:
        raise LoadError(f"{INDEX_FILE} names {missing}, which is not in the folder.")
    return [folder / Path(name).name for name in names]


def _names(path: Path) -> list[str]:
    return _read(path, lambda file: list(file.keys()))


def _read(path: Path, read: Callable[[Any], Any]) -> Any:
    """Open, read, close: pages of a mapped file count as memory in use until it is unmapped."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return read(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise LoadError(
            f"{path.name} is damaged or incomplete ({error}); delete it and load again."
        ) from error
