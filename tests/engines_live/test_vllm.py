"""vLLM's CPU build with SmolLM2: experiments, and the calculator's lines (`make test-engines`).

Starts the engine five times, a minute or more each; not part of `make test`.
"""

import pytest

from kvcore.engines import vllm
from kvcore.engines.logs import read_log
from kvcore.engines.reconcile import reconcile
from kvcore.serving import (
    Budget,
    Client,
    EarlyChange,
    FirstToken,
    Runner,
    Timeouts,
    TokenTime,
    ask_reserved,
    plan,
    policy,
)
from kvcore.serving.findings import (
    early_change_findings,
    first_token_findings,
    token_time_findings,
)
from kvcore.serving.recorded import SMOLLM2_NAME, architecture
from kvcore.units import GIB
from scripts.engine_server import VLLM_PYTHON, vllm_serve

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(not VLLM_PYTHON.exists(), reason="no vLLM here: run make test-engines"),
]
CPU_BLOCK = 128


@pytest.mark.parametrize(("kv_gib", "max_model_len"), [(1, 4_096), (2, 1_000), (3, 8_192)])
def test_the_calculator_predicts_vllms_lines(tmp_path, kv_gib, max_model_len):
    with vllm_serve(tmp_path, kv_gib=str(kv_gib), max_model_len=max_model_len) as engine:
        text = engine.log_text()
        client = Client(policy(None, app_is_local=True).target(engine.url))
        told = ask_reserved(client, client.models()[0])
    log = read_log(text)
    model = architecture(SMOLLM2_NAME)
    predicted = vllm.plan(
        model,
        kv_gib * GIB,
        max_model_len,
        kv_format="bf16",
        block_size=CPU_BLOCK,
        version=log.version,
        device="CPU",
    )
    assert log.device == "CPU"
    assert [r.value for r in log.tokens] == [predicted.kv_cache_tokens]
    assert [r.value for r in log.concurrency] == [round(predicted.max_concurrency, 2)]
    assert vllm.startup_lines(predicted)[-1] in text
    assert reconcile(log, model).agrees
    assert [r.value for r in told.log.blocks] == [predicted.num_blocks]
    assert reconcile(told.log, model, {"available_gib": kv_gib}).agrees


@pytest.mark.parametrize("caching", [True, False])
def test_all_experiments(tmp_path, caching):
    patient = Timeouts(silence=900, answer=1_200)
    with (
        vllm_serve(tmp_path, prefix_caching=caching) as engine,
        Client(policy(None, app_is_local=True).target(engine.url), timeouts=patient) as client,
    ):

        def run(experiment):
            budget = Budget(plan(experiment))
            runner = Runner(client, engine.model, budget, owner=client.models()[0].owner)
            samples = list(runner.samples(experiment))
            assert [s.problem for s in samples if s.problem] == []
            return samples

        first = first_token_findings(run(FirstToken(lengths=(100, 600), repeats=2)))
        early = early_change_findings(run(EarlyChange(length=600, repeats=1)))
        load = token_time_findings(run(TokenTime((100,), (1, 2), 8, 1)))
        told = ask_reserved(client, client.models()[0])
    assert first.told == 4, "it says what it reuses"
    assert told.log.prefix_caching is caching
    assert [each.concurrent for each in load.loads] == [1, 2]
    assert all(each.kv_usage is not None and each.preemptions == 0 for each in load.loads)
    if caching:
        # Of about 600 tokens, whole blocks of 128: four; of 100 none.
        assert first.told_hit == 2
        assert first.reused == 4 * CPU_BLOCK
        assert early.lost_tokens == 4 * CPU_BLOCK
        assert early.costs_times > 1.5
    else:
        assert first.told_hit == 0
        assert first.pays_from is None or first.longest_ratio < 1.3
        assert early.lost_tokens == 0
