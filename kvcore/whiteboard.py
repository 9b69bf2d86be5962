"""Questions to answer with a marker, a checklist, a glossary and the primary sources.

Right answers are computed from the numbers in the question, never typed in beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcore.quantity import Answer, Kind


@dataclass(frozen=True)
class Question:
    """A question, what a good answer says, and, where there is a number, the right one.

    key: stable name for progress and tests.
    points: what a listener would tick off while hearing a good answer.
    page: the page that shows it.
    """

    key: str
    asks: str
    points: tuple[str, ...]
    page: str
    answer: Answer | None = None
    arithmetic: str = ""


@dataclass(frozen=True)
class Check:
    """One line of the operational checklist and the page that measures it."""

    key: str
    do: str
    because: str
    page: str


@dataclass(frozen=True)
class Term:
    name: str
    means: str


@dataclass(frozen=True)
class Source:
    """A primary source and what it is cited for here."""

    who: str
    title: str
    where: str
    cited_for: str


LAYERS, KV_HEADS, HEAD_DIM, TOKENS, BYTES_PER_NUMBER = 32, 8, 128, 8_000, 2
GPU_BYTES, WEIGHT_BYTES = 80 * 10**9, 16 * 10**9
PER_TOKEN = 2 * LAYERS * KV_HEADS * HEAD_DIM * BYTES_PER_NUMBER
PER_REQUEST = PER_TOKEN * TOKENS
STEPS = 24
WITHOUT_CACHE = STEPS * (STEPS + 1) // 2

QUESTIONS: tuple[Question, ...] = (
    Question(
        "stored",
        "What does the cache hold for each token, and why is the query not in it?",
        (
            "A key and a value, in every layer, for every KV head.",
            "Every later token compares itself with the key and reads the value, so both are "
            "needed again and again.",
            "A query is asked once, by its own token, in the step that made it. Nobody asks it a "
            "second time.",
        ),
        "tour",
    ),
    Question(
        "estimate",
        f"{LAYERS} layers, {KV_HEADS} KV heads of dimension {HEAD_DIM}, 16-bit numbers, "
        f"{TOKENS:,} tokens of context: how much memory does one request's cache take?",
        (
            "Two vectors (K and V) × layers × KV heads × head dimension × bytes per number is "
            "what one token adds.",
            "Times the tokens of the context.",
            "The number of query heads and the number of parameters do not come into it.",
        ),
        "calculator",
        Answer(Kind.BYTES, (float(PER_REQUEST),)),
        f"2 × {LAYERS} × {KV_HEADS} × {HEAD_DIM} × {BYTES_PER_NUMBER} B = {PER_TOKEN:,} B a token; "
        f"× {TOKENS:,} tokens = {PER_REQUEST:,} B",
    ),
    Question(
        "users",
        "The same model has 16 GB of weights and runs on a GPU with 80 GB. How many such requests "
        "fit beside the weights?",
        (
            "What the weights leave, divided by one request's cache, rounded down.",
            "A real engine keeps some memory for itself, so it will be fewer.",
        ),
        "calculator",
        Answer(Kind.COUNT, (float((GPU_BYTES - WEIGHT_BYTES) // PER_REQUEST),), tolerance=0.02),
        f"({GPU_BYTES // 10**9} GB − {WEIGHT_BYTES // 10**9} GB) ÷ {PER_REQUEST:,} B = "
        f"{(GPU_BYTES - WEIGHT_BYTES) / PER_REQUEST:.1f}, so "
        f"{(GPU_BYTES - WEIGHT_BYTES) // PER_REQUEST}",
    ),
    Question(
        "steps",
        f"A model writes {STEPS} pieces, starting from one. Without a cache, how many pieces are "
        "run through it in all?",
        (
            "Step n runs n pieces, because everything so far goes through again.",
            f"The sum of 1 to {STEPS}. With a cache it is {STEPS}: one a step.",
        ),
        "live_timing",
        Answer(Kind.COUNT, (float(WITHOUT_CACHE),), tolerance=0.0),
        f"1 + 2 + … + {STEPS} = {STEPS} × {STEPS + 1} ÷ 2 = {WITHOUT_CACHE}",
    ),
    Question(
        "slow_rest",
        "The first token comes quickly, but the rest of the reply is slow. Where do you look?",
        (
            "The first token is prefill: many tokens at once, limited by arithmetic. The rest is "
            "decode: one token at a time, limited by memory traffic.",
            "Each decode step reads all the weights once and the whole cache of every request in "
            "the batch.",
            "So: bytes of weights, length of the contexts, number of KV heads, precision of the "
            "cache, memory bandwidth. And first of all: is the cache on?",
            "Preemption looks the same from outside: a request thrown out is computed again.",
        ),
        "live_timing",
    ),
    Question(
        "same_output",
        "Does the cache change what the model says?",
        (
            "No. The same numbers are looked up instead of computed again.",
            "Sums may be made in another order, which moves the last digits. Where two tokens are "
            "all but tied, that can tip the choice; in 32-bit arithmetic it is rare, in 16-bit it "
            "is not.",
            "What does change it is a cache that forgets (a window) or rounds (8 or 4 bits).",
        ),
        "live_timing",
    ),
    Question(
        "both",
        "Why are both keys and values kept? Would one not do?",
        (
            "The key decides how much a token is looked at; the value is what is then read.",
            "They come from different projections of the same vector; one cannot be had from the "
            "other.",
            "Latent attention (MLA) keeps one smaller vector from which both are made again: less "
            "memory, more arithmetic.",
        ),
        "gqa",
    ),
    Question(
        "sharing",
        "A model has 32 query heads and goes from 32 KV heads to 8. How many times smaller is its "
        "cache?",
        (
            "The cache follows the KV heads alone: four query heads now read the same drawer.",
            "Decode reads that much less, too, if the kernel reads each drawer once and not once a "
            "query head.",
        ),
        "gqa",
        Answer(Kind.TIMES, (32 / 8,), tolerance=0.0),
        "32 ÷ 8 = 4",
    ),
    Question(
        "knowledge",
        "Does the cache hold what the model knows?",
        (
            "No. Knowledge is in the weights, the same for everybody.",
            "The cache holds keys and values of this one text, worked out from it and worthless "
            "for another.",
            "Throw it away and the same ones can be made again, for the price of a prefill.",
        ),
        "cache_lab",
    ),
    Question(
        "prefix",
        "Why does prefix caching help the first token and not the later ones?",
        (
            "A token's key and value depend on the tokens before it only. Two prompts that begin "
            "alike have the same beginning of a cache.",
            "With that beginning at hand, prefill runs the rest alone, so the first token comes "
            "sooner.",
            "After that every request decodes as before: the whole cache is read at every step.",
            "One changed token at the top changes everything after it, and nothing can be reused.",
        ),
        "cache_lab",
    ),
)

CHECKLIST: tuple[Check, ...] = (
    Check(
        "size",
        "Size the cache from the model's config",
        "Parameters, hidden size and query heads say nothing about it; KV heads, head dimension "
        "and layer kinds do.",
        "calculator",
    ),
    Check(
        "slope",
        "Know both numbers: growth per token and the fixed part per request",
        "Windows and recurrent layers do not grow; dividing them by the context misleads.",
        "calculator",
    ),
    Check(
        "engine",
        "Hold the engine's start-up log against the calculator",
        "Padding, blocks and graphs take memory that no formula about the model shows.",
        "calculator",
    ),
    Check(
        "ranks",
        "Check KV heads against tensor parallelism",
        "With fewer KV heads than ranks, heads are copied, and more GPUs hold no more users.",
        "calculator",
    ),
    Check(
        "phases",
        "Measure time to first token and time per token apart",
        "They have different limits, and different cures.",
        "live_timing",
    ),
    Check(
        "order",
        "Put what never changes first, and nothing that changes above it",
        "A timestamp or a name at the top makes every prompt new from there on.",
        "cache_lab",
    ),
    Check(
        "minimum",
        "Make the shared prefix longer than the block or the provider's minimum",
        "Below it nothing is reused, and nobody says so.",
        "prompt_caching",
    ),
    Check(
        "lifetime",
        "Compare the time between requests with the cache's lifetime",
        "A cache that expires before it is read costs the write and saves nothing.",
        "prompt_caching",
    ),
    Check(
        "hits",
        "Watch the hit rate in tokens, counted when a request is admitted",
        "Counted in requests, or again after a preemption, it flatters.",
        "cache_lab",
    ),
    Check(
        "preemptions",
        "Watch preemptions, and leave a little of the pool free",
        "Each one computes tokens a second time; a small watermark prevents most.",
        "paging",
    ),
    Check(
        "precision",
        "Choose the precision of the cache by measuring your own text",
        "8 bits are usually free; 4 bits cost more in the keys than in the values.",
        "cache_quality",
    ),
    Check(
        "recall",
        "If old tokens are dropped, ask for something said early",
        "Perplexity stays good while the fact is gone.",
        "cache_quality",
    ),
    Check(
        "outside",
        "Measure the server you really run, cold and warm",
        "What an engine says it caches and what the clock says should agree.",
        "server",
    ),
)

GLOSSARY: tuple[Term, ...] = (
    Term("Token", "A piece of text the model reads and writes: a word, part of one, or a sign."),
    Term(
        "Key, value, query",
        "Three vectors a layer makes from each token. A query is compared "
        "with the keys of all earlier tokens; the values of those that match are read.",
    ),
    Term(
        "KV cache",
        "The keys and values of all tokens so far, kept so that they need not be computed again.",
    ),
    Term(
        "Prefill",
        "Running the prompt through the model, all tokens at once, to fill the cache "
        "and get the first new token. Limited by arithmetic.",
    ),
    Term(
        "Decode",
        "Making one token after another. Each reads all weights and the whole cache. "
        "Limited by memory bandwidth.",
    ),
    Term("Time to first token", "From the request to the first new token: waiting, then prefill."),
    Term("Time per output token", "The pace after the first one: decode."),
    Term("Head", "One of the parallel attentions in a layer, with its own query."),
    Term(
        "MHA, GQA, MQA",
        "Multi-head: each query head has a KV head of its own. Grouped-query: a "
        "group of query heads shares one. Multi-query: all share one.",
    ),
    Term(
        "MLA",
        "Multi-head latent attention: one compressed vector a token instead of keys and "
        "values for each head.",
    ),
    Term(
        "Sliding window",
        "A layer that looks back a fixed number of tokens; what lies before can be dropped.",
    ),
    Term(
        "Attention sink",
        "The first few tokens, which attention leans on whatever they say. "
        "Keep them and a window still writes fluently; what left the window is gone all the same.",
    ),
    Term("Heavy hitter", "A token that has received much attention so far, kept for that reason."),
    Term(
        "Block, block table",
        "A fixed number of token slots, the unit in which paged memory is "
        "given out, and the list of blocks a request owns.",
    ),
    Term("Reservation", "Slots held for tokens this request will still write."),
    Term("Internal fragmentation", "Slots held for tokens that will never come."),
    Term(
        "External fragmentation", "Free memory in pieces too small, or of the wrong size, to use."
    ),
    Term(
        "Copy-on-write",
        "Two requests share a block until one of them writes into it; only then is it copied.",
    ),
    Term(
        "Preemption",
        "Taking a running request's blocks away because the pool is full, and "
        "computing (or copying back) its cache later.",
    ),
    Term(
        "Prefix caching",
        "Reusing the cache of a beginning that a new prompt shares with an earlier one.",
    ),
    Term("Hit rate", "Tokens found in the cache as a share of prompt tokens asked for."),
    Term(
        "Cache read, cache write",
        "What hosted APIs charge for prompt tokens found in the cache, and for tokens put there.",
    ),
    Term("Quantised cache", "Keys and values rounded to 8 or 4 bits, with scales beside them."),
    Term(
        "Perplexity",
        "How surprised a model is by a text, on average; lower is better. Twice the "
        "perplexity means one more yes-or-no question of surprise a token.",
    ),
    Term(
        "GiB and GB",
        "2³⁰ and 10⁹ bytes: 80 GB is 74.5 GiB. Makers do not keep to one of them; an "
        "H100 sold as 80 GB shows 79.65 GiB to its driver.",
    ),
)

SOURCES: tuple[Source, ...] = (
    Source(
        "Vaswani et al., 2017",
        "Attention Is All You Need",
        "arXiv:1706.03762",
        "queries, keys, values and multi-head attention (section 3.2)",
    ),
    Source(
        "Radford et al., 2019",
        "Language Models are Unsupervised Multitask Learners",
        "OpenAI report",
        "GPT-2, the model timed live",
    ),
    Source(
        "Shazeer, 2019",
        "Fast Transformer Decoding: One Write-Head is All You Need",
        "arXiv:1911.02150",
        "multi-query attention, and why decode is limited by memory",
    ),
    Source(
        "Ainslie et al., 2023",
        "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
        "arXiv:2305.13245",
        "grouped-query attention, mean-pooling and uptraining (section 2, table 1)",
    ),
    Source(
        "Kwon et al., 2023",
        "Efficient Memory Management for Large Language Model Serving with PagedAttention",
        "arXiv:2309.06180",
        "paging, fragmentation (figure 2), sizes of OPT's cache (section 3, table 1)",
    ),
    Source(
        "Xiao et al., 2023",
        "Efficient Streaming Language Models with Attention Sinks",
        "arXiv:2309.17453",
        "attention sinks and the window that keeps them",
    ),
    Source(
        "Zhang et al., 2023",
        "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models",
        "arXiv:2306.14048",
        "heavy hitters",
    ),
    Source("DeepSeek-AI, 2024", "DeepSeek-V2", "arXiv:2405.04434", "multi-head latent attention"),
    Source(
        "Anthropic",
        "Prompt caching",
        "Claude Platform documentation, 2026",
        "prices and lifetimes of cache reads and writes",
    ),
    Source(
        "OpenAI",
        "Prompt caching",
        "OpenAI API documentation, 2026",
        "automatic caching, minimum prefix, discounts",
    ),
    Source(
        "Google",
        "Context caching",
        "Gemini API documentation, 2026",
        "implicit and explicit caches, storage by the hour",
    ),
)
