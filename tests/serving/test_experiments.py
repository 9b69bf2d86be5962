"""The experiments against a server that caches, or misbehaves half-way."""

import random
import re
import threading
import time
from collections import Counter
from decimal import Decimal

import pytest

from kvcore.engines.reconcile import reconcile
from kvcore.jobs import Job, State
from kvcore.serving import (
    Budget,
    EarlyChange,
    ExperimentError,
    FirstToken,
    Runner,
    Timeouts,
    TokenTime,
    ask_reserved,
    plan,
)
from kvcore.serving import run as run_module
from kvcore.serving.errors import (
    CapReached,
    KeyRefused,
    NoSuchModel,
    TimedOut,
    TooManyRequests,
)
from kvcore.serving.experiments import AGAIN, BACK, CHANGED, COLD, FIRST, LEVEL, WARM, WARM_UP
from kvcore.serving.findings import (
    early_change_findings,
    first_token_findings,
    token_time_findings,
)
from kvcore.serving.frames import from_records, to_records
from kvcore.serving.prompts import changed_early
from kvcore.serving.recorded import SMOLLM2_NAME, architecture
from kvcore.serving.run import skew_notice
from tests.serving.fake_server import MODEL, FakeClock

A_WORD = 2.0**-11
"""Seconds the fake server computes a word; a power of two, so that sums on the clock are exact."""
SMALL = FirstToken(lengths=(100, 500), repeats=2)


def samples(client, experiment, **options):
    runner = Runner(client, MODEL, Budget(plan(experiment)), dice=random.Random(1), **options)
    return list(runner.samples(experiment))


@pytest.mark.parametrize(
    "experiment",
    [
        FirstToken((100, 500, 1_000), repeats=3),
        FirstToken((100, 100), repeats=2),
        EarlyChange(700, repeats=2),
        TokenTime((100, 400), levels=(1, 2, 8), output_tokens=9, repeats=3),
        TokenTime((100,), levels=(1,), output_tokens=4, repeats=1),
    ],
)
def test_what_is_planned_is_what_is_sent(experiment):
    sent = [r for wave in experiment.waves(random.Random(3)) for r in wave.requests]
    assert experiment.sizes() == Counter((r.target_tokens, r.max_tokens) for r in sent)
    agreed = plan(experiment)
    assert agreed.requests == len(sent)
    assert agreed.prompt_tokens == sum(r.target_tokens for r in sent)
    assert agreed.output_tokens == sum(r.max_tokens for r in sent)


# 1: cold and warm


def test_a_server_that_caches(serve):
    client, _ = serve(seconds_per_word=A_WORD, clock=FakeClock())
    found = samples(client, SMALL)
    assert [s.series for s in found].count(WARM_UP) == 1
    cold = [s for s in found if s.series == COLD]
    warm = [s for s in found if s.series == WARM]
    assert len(cold) == len(warm) == 4
    assert all(s.cached_tokens == 0 and s.metric_hits == 0 for s in cold)
    for sample in warm:
        shared = sample.target_tokens - 40 + 4  # the passage, and "Reply with the word"
        expected = shared // 16 * 16
        assert sample.cached_tokens == sample.metric_hits == expected
    says = first_token_findings(found)
    assert (says.pairs, says.told, says.told_hit) == (4, 4, 4)
    assert (says.in_time, says.agreeing) == (4, 4)
    assert says.pays_from == 65, "the shortest prompt, in the tokens that the server counted"
    assert says.longest_ratio == 465, "465 words cold, one warm"
    assert says.cold_line.slope == A_WORD
    assert says.warm_line.slope == 0


def test_cold_and_warm_alternate(serve):
    client, server = serve()
    order = [s.series for s in samples(client, SMALL) if s.series != WARM_UP]
    assert order == [COLD, WARM] * 4
    prompts = [r["messages"][-1]["content"] for r in server.behaviour.requests[1:]]
    for cold, warm in zip(prompts[::2], prompts[1::2], strict=True):
        assert cold.split("\n\n")[0] == warm.split("\n\n")[0]
    assert len({p.split("\n\n")[0] for p in prompts}) == 4


def test_a_server_that_does_not_cache(serve):
    client, _ = serve(seconds_per_word=A_WORD, caches=False, clock=FakeClock())
    says = first_token_findings(samples(client, SMALL))
    assert says.told > 0
    assert says.told_hit == says.in_time == 0
    assert says.pays_from is None
    assert says.longest_ratio == 1


def test_a_server_that_says_nothing(serve):
    client, _ = serve(seconds_per_word=A_WORD, usage=False, metrics=False, clock=FakeClock())
    found = samples(client, SMALL)
    assert all(s.prompt_tokens is None and s.said_cached is None for s in found)
    assert {s.tokens for s in found if s.series == COLD} == {100, 500}
    says = first_token_findings(found)
    assert says.told == 0
    assert "does not say" in says.verdict


# 2: one early character


def test_one_early_character(serve):
    client, _ = serve(seconds_per_word=A_WORD, clock=FakeClock())
    found = samples(client, EarlyChange(length=500, repeats=2))
    says = early_change_findings(found)
    assert list(says.seconds) == [FIRST, AGAIN, CHANGED, BACK]
    assert says.reused[FIRST] == 0
    assert says.reused[AGAIN] == says.reused[BACK] == 464
    assert says.reused[CHANGED] == 0
    assert says.lost_tokens == 464
    assert says.costs_times == 465, "all 465 words are computed instead of one"


def test_exactly_one_character_differs():
    words = ["alpha", "beta", "gamma", "delta"]
    other = changed_early(words, 2, random.Random(0))
    differing = [(a, b) for a, b in zip(" ".join(words), " ".join(other), strict=True) if a != b]
    assert len(differing) == 1


# 3: time per token


def test_time_per_token_and_load(serve):
    client, server = serve(seconds_per_token=0.01)
    experiment = TokenTime(contexts=(100, 200), levels=(1, 4), output_tokens=8, repeats=1)
    found = samples(client, experiment, owner="vllm")
    says = token_time_findings(found)
    assert set(says.by_context) == {100, 200}
    one, four = says.loads
    assert (one.concurrent, four.concurrent) == (1, 4)
    assert one.seconds_per_token.count == 1
    assert four.seconds_per_token.count == 4
    assert four.seconds_per_token.middle > 1.5 * one.seconds_per_token.middle
    assert one.preemptions == 0
    assert says.bends_at == 1, "this server serves four no faster than one"
    asked = [r for r in server.behaviour.requests if r.get("ignore_eos")]
    assert len(asked) == 2 + 5


def test_unknown_servers_are_sent_standard_fields_only(serve):
    client, server = serve(engine="openai")
    samples(client, TokenTime((100,), (1,), 4, 1), owner="openai")
    allowed = {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert all(set(r) == allowed for r in server.behaviour.requests)


def test_concurrent_requests_really_overlap(serve):
    client, _ = serve(seconds_per_token=0.02)
    found = samples(client, TokenTime((100,), (8,), 12, 1))
    levels = [s for s in found if s.series == LEVEL]
    assert len(levels) == 8
    assert levels[0].kv_usage > 0.05, "the fill of several open streams was seen"
    assert levels[0].wave_seconds < sum(s.total_seconds for s in levels) / 2


# Counted and capped beforehand


@pytest.mark.parametrize(
    ("experiment", "requests", "tokens_in", "tokens_out"),
    [
        (FirstToken((100, 500), 2), 9, 100 + 2 * 2 * 600, 2 + 8),
        (EarlyChange(500, 3), 13, 100 + 3 * 4 * 500, 2 + 12),
        (TokenTime((100, 200), (1, 2), 8, 2), 11, 100 + 2 * (300 + 3 * 100), 2 + 2 * 5 * 8),
    ],
)
def test_the_plan_is_what_is_sent(serve, experiment, requests, tokens_in, tokens_out):
    agreed = plan(experiment)
    assert (agreed.requests, agreed.prompt_tokens, agreed.output_tokens) == (
        requests,
        tokens_in,
        tokens_out,
    )
    client, server = serve()
    samples(client, experiment)
    assert len(server.behaviour.requests) == requests


def test_dollars_of_a_priced_model():
    agreed = plan(FirstToken((1_000,), 1), "gpt-4o")
    # 2,100 tokens in at $2.50 and 4 out at $10 per million (OpenAI's list price).
    assert agreed.dollars == Decimal("2.5") * 2_100 / 10**6 + Decimal(10) * 4 / 10**6
    assert agreed.most_dollars > agreed.dollars
    assert "gpt-4o" in agreed.priced_as
    assert plan(FirstToken((1_000,), 1), "no-such-model").dollars is None
    at_openai = plan(FirstToken((1_000,), 1), "gpt-4o", "https://api.openai.com/v1")
    assert at_openai == agreed
    elsewhere = plan(FirstToken((1_000,), 1), "gpt-4o", "https://api.groq.com/openai/v1")
    assert elsewhere.dollars is None, "Groq sells no such model"
    assert plan(FirstToken((1_000,), 1)).dollars is None


@pytest.mark.parametrize(
    "experiment",
    [
        FirstToken((), 1),
        FirstToken((10,), 1),
        FirstToken((100,), 0),
        FirstToken((200_000,), 20),
        EarlyChange(10, 1),
        TokenTime((100,), (), 8, 1),
        TokenTime((100,), (33,), 8, 1),
        TokenTime((100,), (1,), 1, 1),
        TokenTime((100,), (32, 16, 8), 8, 20),
    ],
)
def test_experiments_out_of_range_are_refused(experiment):
    with pytest.raises(ExperimentError) as caught:
        plan(experiment)
    assert str(caught.value).endswith(".")


def test_the_cap_holds_whatever_the_server_counts(serve):
    client, server = serve()
    budget = Budget(plan(SMALL))
    inflate = server.behaviour.reuse
    server.behaviour.reuse = lambda words: inflate(words * 5)
    original = client.ask

    def ask(*args, **options):
        answer = original(*args, **options)
        from dataclasses import replace

        answer.usage = replace(answer.usage, fresh=answer.usage.fresh * 5)
        return answer

    client.ask = ask
    kept = []
    with pytest.raises(CapReached, match="tokens is reached"):
        kept.extend(Runner(client, MODEL, budget).samples(SMALL))
    assert budget.tokens <= budget.agreed.most_tokens * 1.5
    assert len(server.behaviour.requests) < plan(SMALL).requests


def test_retries_count_towards_the_cap(serve, monkeypatch):
    monkeypatch.setattr(run_module, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(run_module, "TRIES", 1_000)
    client, server = serve(limit=10_000)
    with pytest.raises(CapReached, match="requests is reached"):
        samples(client, SMALL)
    assert len(server.behaviour.requests) == plan(SMALL).most_requests


# Faults half-way


def run_as_job(client, experiment, **options):
    def work(job):
        runner = Runner(
            client, MODEL, Budget(plan(experiment)), stopped=lambda: job.stopping, **options
        )
        yield from runner.samples(experiment)

    return Job(work, queue=None)


@pytest.mark.parametrize(("fault", "error"), [("stall", TimedOut), ("hang", TimedOut)])
def test_partial_results_stay(serve, fault, error):
    client, server = serve(timeouts=Timeouts(silence=0.2, answer=5))
    job = run_as_job(client, FirstToken((100,), 4))
    server.behaviour.fault = ""
    good = threading.Event()
    original = client.ask

    def ask(*args, **options):
        if len(server.behaviour.requests) == 4:
            server.behaviour.fault = fault
            good.set()
        return original(*args, **options)

    client.ask = ask
    job.start()
    job.join(30)
    assert good.is_set()
    assert job.state is State.FAILED
    assert isinstance(job.error, error)
    whole = [s for s in job.results if not s.problem]
    broken = [s for s in job.results if s.problem]
    assert len(whole) == 4
    assert len(broken) == run_module.FAULTS_IN_A_ROW
    assert first_token_findings(job.results).pairs >= 1


def test_one_broken_answer_does_not_end_the_experiment(serve):
    client, server = serve()
    original = client.ask

    def ask(*args, **options):
        server.behaviour.fault = "drop" if len(server.behaviour.requests) == 3 else ""
        return original(*args, **options)

    client.ask = ask
    found = samples(client, SMALL)
    assert sum(bool(s.problem) for s in found) == 1
    assert len(found) == plan(SMALL).requests


def test_a_wrong_model_or_key_ends_it_at_once(serve):
    client, server = serve()
    runner = Runner(client, "gpt-9", Budget(plan(SMALL)))
    with pytest.raises(NoSuchModel):
        list(runner.samples(SMALL))
    assert len(server.behaviour.requests) == 1
    client, server = serve(fault="refuse-with", status=401, body="{}")
    with pytest.raises(KeyRefused):
        samples(client, SMALL)
    assert len(server.behaviour.requests) == 1


@pytest.mark.parametrize("header", ["0", None])
def test_a_limit_is_waited_for(serve, monkeypatch, header):
    monkeypatch.setattr(run_module, "PAUSES", (0.01, 0.01))
    client, _ = serve(limit=2, retry_after=header)
    found = samples(client, FirstToken((100,), 1))
    assert found[0].retries == 2
    assert not any(s.problem for s in found)


def test_a_long_wait_is_not_waited_for(serve):
    client, _ = serve(limit=100, retry_after="3600")
    with pytest.raises(TooManyRequests, match="3,600 s"):
        samples(client, SMALL)


def test_a_limit_that_never_ends(serve, monkeypatch):
    monkeypatch.setattr(run_module, "PAUSES", (0.0, 0.0))
    client, server = serve(limit=100)
    with pytest.raises(TooManyRequests, match="does not say for how long"):
        samples(client, SMALL)
    assert len(server.behaviour.requests) == run_module.TRIES


@pytest.mark.parametrize("fault", ["stall", "hang"])
def test_stop_ends_within_a_step_and_hangs_up(serve, fault):
    client, server = serve(fault=fault, timeouts=Timeouts(silence=60, answer=60))
    job = run_as_job(client, FirstToken((100,), 2)).start()
    while not (server.behaviour.requests or fault == "hang" and server.behaviour.keys_seen):
        time.sleep(0.01)
    time.sleep(0.2)
    began = time.monotonic()
    job.stop()
    job.join(20)
    assert job.state is State.STOPPED
    assert time.monotonic() - began < 8, "it did not wait for the time-out"
    assert len(server.behaviour.requests) == (1 if fault == "stall" else 0)


def test_stop_while_waiting_for_a_limit(serve):
    client, server = serve(limit=100, retry_after="50")
    job = run_as_job(client, SMALL).start()
    while not server.behaviour.requests:
        time.sleep(0.01)
    job.stop()
    job.join(20)
    assert job.state is State.STOPPED


def test_a_skewed_clock_is_said_and_changes_nothing(serve):
    client, _ = serve(clock_ahead=7_200)
    found = samples(client, FirstToken((100,), 1))
    assert re.search(r"clock is (120 min|2\.0 h) ahead of", skew_notice(found))
    assert all(0 < s.first_token_seconds < 5 for s in found)
    client, _ = serve()
    assert skew_notice(samples(client, FirstToken((100,), 1))) == ""


# 4: what it reserved, and records


def test_what_vllm_reserved(serve):
    client, server = serve()
    server.documents["/version"] = {"version": "0.32.0"}
    told = ask_reserved(client, client.models()[0])
    assert told.engine == "vLLM"
    assert told.log.version == "0.32.0"
    assert (told.log.block_size, told.log.max_model_len) == (128, 4096)
    assert told.log.prefix_caching is True
    assert [r.value for r in told.log.blocks] == [728]
    assert [r.value for r in told.log.available] == [2.0]
    assert [r.value for r in told.log.tokens] == [93_184]
    assert [r.value for r in told.log.concurrency] == [22.75]
    result = reconcile(told.log, architecture(SMOLLM2_NAME))
    assert result.agrees
    assert len([row for row in result.rows if row.agrees]) == 3
    assert {f.name for f in told.facts} >= {"version", "block_size", "num_gpu_blocks"}


def test_what_sglang_reserved(serve):
    client, server = serve(engine="sglang", metrics=False)
    server.documents["/server_info"] = {
        "version": "0.5.6",
        "page_size": 64,
        "tp_size": 2,
        "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.85,
        "internal_states": [{"max_total_num_tokens": 471_258}],
    }
    told = ask_reserved(client, client.models()[0])
    assert told.engine == "SGLang"
    assert told.log.max_total_tokens == 471_258
    assert (told.log.page_size, told.log.tensor_parallel) == (64, 2)
    assert told.log.kv_cache_dtype is None


def test_what_llamacpp_reserved(serve):
    client, server = serve(engine="llamacpp", metrics=False)
    server.documents["/props"] = {
        "default_generation_settings": {"n_ctx": 4096},
        "total_slots": 4,
        "build_info": "b10000",
    }
    server.documents["/slots"] = [{"id": n, "n_ctx": 4096} for n in range(4)]
    told = ask_reserved(client, client.models()[0])
    assert told.engine == "llama.cpp"
    assert (told.log.slots, told.log.context_per_slot, told.log.context) == (4, 4096, 16_384)


def test_a_server_that_reserves_in_silence(serve):
    client, _ = serve(engine="local", metrics=False)
    told = ask_reserved(client, client.models()[0])
    assert told.log is None


def test_samples_survive_a_recording(serve):
    client, _ = serve()
    found = samples(client, FirstToken((100,), 1))
    back = from_records(to_records(found))
    assert [s.series for s in back] == [s.series for s in found]
    for kept, sample in zip(back, found, strict=True):
        assert kept.first_token_seconds == pytest.approx(sample.first_token_seconds, abs=1e-4)
        assert kept.cached_tokens == sample.cached_tokens
        assert kept.prompt_tokens == sample.prompt_tokens
