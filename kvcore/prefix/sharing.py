"""What sharing a prompt's blocks saves when several samples are drawn from it."""

from collections.abc import Iterable


def parallel_sampling_saving(
    lengths: Iterable[tuple[int, int]], samples: int, block_size: int = 16
) -> float:
    """Share of block-steps saved by holding the prompt once for `samples` samples, 0 to 1.

    `lengths`: (prompt tokens, output tokens) of each request; all its samples are as long as its
    output, one token a step. Full blocks of the prompt are shared, the last, partly filled one is
    copied at the first write (Kwon et al. 2023, §4.4 and Figure 15: blocks saved by sharing over
    blocks without it). Raises ValueError for fewer than one sample or no output at all.
    """
    if samples < 1:
        raise ValueError("There is at least 1 sample.")
    shared = held = 0
    for prompt_tokens, output_tokens in lengths:
        shared += prompt_tokens // block_size * output_tokens
        held += _blocks_up_to(prompt_tokens + output_tokens, block_size)
        held -= _blocks_up_to(prompt_tokens, block_size)
    if not held:
        raise ValueError("Nothing is generated, so there is nothing to save.")
    return (samples - 1) / samples * shared / held


def _blocks_up_to(length: int, block_size: int) -> int:
    """Sum of ceil(t / block_size) over t = 1 … length, in closed form."""
    full, rest = divmod(length, block_size)
    return block_size * full * (full + 1) // 2 + rest * (full + 1)
