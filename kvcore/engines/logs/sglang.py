"""How SGLang prints its figures when it starts."""

from __future__ import annotations

from kvcore.engines.logs.rules import (
    DECIMAL,
    GROUPED,
    INTEGER,
    flag,
    number,
    reading,
    rule,
    setting,
    switch,
    text,
    whole,
)

WORDS = (
    "sglang",
    "ServerArgs(",
    "KV cache dtype",
    "Load weight",
    "KV Cache is allocated",
    "liding window memory pool",
    "SWAKVPool",
    "Mamba Cache",
    "max_total_num_tokens",
    "swa_full_tokens_ratio",
    "mem_fraction_static",
    "--mem-fraction-static",
    "dp-attention",
    "dp_attention",
)
RULES = (
    rule(r"\bsglang[ =]+v?(\d[\w.+-]{1,40})", text("version")),
    rule(r"server_args=ServerArgs\(model_path='([^']{1,300})'", text("model")),
    rule(setting("mem_fraction_static", DECIMAL), number("mem_fraction_static")),
    rule(setting("page_size", INTEGER), whole("page_size")),
    rule(setting("tp(?:_size)?", INTEGER), whole("tensor_parallel")),
    rule(setting("dp(?:_size)?", INTEGER), whole("data_parallel")),
    rule(setting("enable_dp_attention", "(True|False)"), switch("dp_attention")),
    rule(r"--enable-dp-attention\b", flag("dp_attention")),
    rule(r"ServerArgs\(.*\bkv_cache_dtype='(\w{1,40})'", text("kv_cache_dtype")),
    rule(r"Using KV cache dtype: torch\.(\w{1,40})", text("kv_cache_dtype")),
    rule(rf"\bswa_full_tokens_ratio={DECIMAL}", number("swa_full_tokens_ratio")),
    rule(rf"Load weight begin\. avail mem={DECIMAL} GB", reading("free_before_load")),
    rule(
        rf"Load weight end\..{{0,200}}?avail mem={DECIMAL} GB",
        reading("free_after_load"),
    ),
    rule(rf"Load weight end\..{{0,200}}?mem usage={DECIMAL} GB", reading("weights")),
    rule(rf"KV Cache is allocated\..{{0,60}}?#tokens: {GROUPED}", reading("tokens")),
    rule(rf"KV Cache is allocated\..{{0,120}}?K size: {DECIMAL} GB", reading("k_gib")),
    rule(rf"KV Cache is allocated\..{{0,160}}?V size: {DECIMAL} GB", reading("v_gib")),
    rule(rf"KV Cache is allocated\..{{0,120}}?KV size: {DECIMAL} GB", reading("kv_gib")),
    rule(
        rf"[Ss]liding window memory pool.{{0,30}}?full_layer_tokens={INTEGER}",
        whole("full_layer_tokens"),
    ),
    rule(
        rf"[Ss]liding window memory pool.{{0,120}}?swa_layer_tokens={INTEGER}",
        whole("swa_layer_tokens"),
    ),
    rule(rf"SWAKVPool mem usage: {DECIMAL} GB", number("swa_pool_gib")),
    rule(
        rf"Mamba Cache is allocated\..{{0,20}}?max_mamba_cache_size: {INTEGER}",
        whole("state_slots"),
    ),
    rule(
        rf"Mamba Cache is allocated\..{{0,80}}?conv_state size: {DECIMAL}\s?GB",
        number("conv_state_gib"),
    ),
    rule(
        rf"Mamba Cache is allocated\..{{0,120}}?ssm_state size: {DECIMAL}\s?GB",
        number("ssm_state_gib"),
    ),
    rule(rf"\bmax_total_num_tokens={INTEGER}", whole("max_total_tokens")),
    rule(
        rf"max_total_num_tokens={INTEGER}, .{{0,160}}?max_running_requests={INTEGER}",
        whole("max_running_requests", group=2),
    ),
    rule(
        rf"max_total_num_tokens={INTEGER}, .{{0,200}}?context_len={INTEGER}",
        whole("context_len", group=2),
    ),
)
