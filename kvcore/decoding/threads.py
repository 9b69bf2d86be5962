"""How many threads compute a step, and that waiting ones sleep.

With GNU OpenMP's default, threads that wait for work spin: two threads beside any other busy
process then make a decode step several times slower. `OMP_WAIT_POLICY=PASSIVE`, set when this
package is imported and so before torch is, makes them sleep.
"""

import gc

from kvcore.checks import is_whole
from kvcore.decoding.errors import SettingsError

DEFAULT_THREADS = 1


def import_torch() -> None:
    """Import torch on its first use, and keep the collector from walking its objects ever after."""
    import sys

    if "torch" in sys.modules:
        return
    import torch

    torch.set_num_threads(DEFAULT_THREADS)
    gc.freeze()


def check_threads(threads: int) -> None:
    """SettingsError unless a run can have so many threads."""
    if not is_whole(threads) or threads < 1:
        raise SettingsError(f"A run needs a whole number of threads from 1 up, not {threads}.")


def use_threads(threads: int = DEFAULT_THREADS) -> int:
    """Compute with `threads` threads from here on, in the calling thread; return torch's word.

    Call it at the start of each run: torch keeps the number per thread that was already started.
    """
    import torch

    check_threads(threads)
    torch.set_num_threads(threads)
    return torch.get_num_threads()
