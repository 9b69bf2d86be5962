"""Start-up text of real runs, cut to the lines that matter; sources are public issues."""

from __future__ import annotations

VLLM_LLAMA_20K = """\
INFO 11-21 09:15:33 model_runner.py:1077] Loading model weights took 14.9888 GB
INFO 11-21 09:15:34 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB \
initial_memory_usage=15.34GiB peak_torch_memory=17.06GiB memory_usage_post_profile=15.35GiB \
non_torch_memory=0.35GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90
INFO 11-21 09:15:34 gpu_executor.py:113] # GPU blocks: 1952, # CPU blocks: 2048
INFO 11-21 09:15:34 gpu_executor.py:117] Maximum concurrency for 20000 tokens per request: 1.56x
"""
"""vllm-project/vllm#10517: Llama-3.1-8B on an RTX 3090."""

VLLM_LLAMA_29K = """\
Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB \
peak_torch_memory=17.98GiB non_torch_memory=0.35GiB kv_cache_size=2.89GiB \
gpu_memory_utilization=0.90
# GPU blocks: 1478, # CPU blocks: 2048
Maximum concurrency for 29000 tokens per request: 0.82x
ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can \
be stored in KV cache (23648). Try increasing `gpu_memory_utilization`.
"""
"""The same, at a length that does not start."""

VLLM_QWEN3_235B = """\
Available KV cache memory: 8.11 GiB
GPU KV cache size: 178,880 tokens
"""
"""vllm-project/vllm#21348: Qwen3-235B-A22B-FP8, TP4."""

VLLM_QWEN35_27B = """\
(EngineCore_DP0 pid=9) INFO Setting attention block size to 784 tokens to ensure that attention \
page size is >= mamba page size.
(EngineCore_DP0 pid=9) INFO GPU KV cache size: 290,864 tokens
(EngineCore_DP0 pid=9) INFO Maximum concurrency for 32,768 tokens per request: 33.04x
"""
"""vllm-project/vllm#40691: Qwen3.5-27B, v0.19."""

VLLM_QWEN36_35B = """\
Initializing a V1 LLM engine (v0.24.0) with config: model='Qwen3.6-35B-A3B', \
dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=1, kv_cache_dtype=fp8, \
enable_prefix_caching=True
Available KV cache memory: 5.98 GiB
GPU KV cache size: 567,978 tokens
Maximum concurrency for 131,072 tokens per request: 4.33x
"""
"""noonghunna/club-3090#612."""

VLLM_QWEN36_27B_DRAFTS = """\
Initializing a V1 LLM engine (v0.24.0) with config: max_seq_len=262144, \
tensor_parallel_size=2, kv_cache_dtype=fp8_e5m2, num_spec_tokens=3, enable_prefix_caching=True
(Worker_TP1 pid=2) INFO Available KV cache memory: 11.09 GiB
(Worker_TP0 pid=1) INFO Available KV cache memory: 11.05 GiB
WARNING Add 3 padding layers, may waste at most 6.25% KV cache memory
GPU KV cache size: 623,873 tokens
Maximum concurrency for 262,144 tokens per request: 2.38x
"""
"""noonghunna/club-3090#642: two RTX 3090."""

VLLM_GPT_OSS_120B = """\
Initializing a V1 LLM engine (v0.11.0) with config: max_seq_len=131072, kv_cache_dtype=auto
Model loading took 65.9651 GiB and 12.3 seconds
ValueError: To serve at least one request with the models's max seq len (131072), (4.54 GiB KV \
cache is needed, which is larger than the available KV cache memory (1.71 GiB). Based on the \
available memory, the estimated maximum model length is 19,000.
"""
"""vllm-project/vllm#27508: one H100."""

VLLM_CPU = """\
Explicitly set (2.0/18.84) GiB for KV cache
CPU KV cache size: 93,184 tokens, Maximum concurrency for 4,096 tokens per request: 22.75x
"""
"""vLLM 0.32.0, CPU build, SmolLM2-135M."""

VLLM_NEW_BREAKDOWN = """\
(EngineCore pid=6) INFO Available KV cache memory: 34.76 GiB
(EngineCore pid=6) INFO Free memory on device (82.22/83.05 GiB) on startup. Desired GPU memory \
utilization is (0.95, 78.9 GiB). Actual usage is 43.21 GiB for consumed memory (weights + \
non-torch), 0.92 GiB for peak activation, and 0.12 GiB for CUDAGraph memory.
"""

SGLANG_QWEN3_235B = "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
"""vllm-project/vllm#21348: the same box, TP4."""

SGLANG_HYBRID = """\
[2026-04-14 16:08:49 TP1] Load weight end. elapsed=5.46 s, type=Qwen3_5ForConditionalGeneration, \
avail mem=14.08 GB, mem usage=8.85 GB.
[2026-04-14 16:08:49 TP0] Using KV cache dtype: torch.bfloat16
[2026-04-14 16:08:49 TP0] Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: \
0.10GB, ssm_state size: 4.38GB
[2026-04-14 16:08:49 TP0] KV Cache is allocated. #tokens: 327310, K size: 2.50 GB, V size: 2.50 GB
[2026-04-14 16:08:49 TP1] KV Cache is allocated. #tokens: 327310, K size: 2.50 GB, V size: 2.50 GB
"""
"""Qwen3.5-9B on two GPUs."""

SGLANG_DEEPSEEK = """\
[2025-10-01 10:00:00 DP0 TP0] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3.2-Exp', \
page_size=64, tp_size=8, dp_size=8, enable_dp_attention=True, \
mem_fraction_static=0.9, kv_cache_dtype='fp8_e4m3')
[2025-10-01 10:00:05 DP0 TP0] KV Cache is allocated. #tokens: 1462784, KV size: 65.49 GB
[2025-10-01 10:00:05 DP0 TP0] max_total_num_tokens=1462784, chunked_prefill_size=8192, \
max_prefill_tokens=16384, max_running_requests=2048, context_len=163840, available_gpu_mem=9.1 GB
"""
"""sgl-project/sglang#11309."""

LLAMACPP_GPT_OSS_20B = """\
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 131072
llama_context: n_ctx_seq     = 131072
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: kv_unified    = true
llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache:       MTL0 KV buffer size =  3072.00 MiB
llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  4/1 seqs), K (f16): 1536.00 MiB, \
V (f16): 1536.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells
llama_kv_cache:       MTL0 KV buffer size =    24.00 MiB
llama_kv_cache: size =   24.00 MiB (  1024 cells,  12 layers,  4/1 seqs), K (f16):   12.00 MiB, \
V (f16):   12.00 MiB
"""

LLAMACPP_HYBRID = """\
llama_context: kv_unified    = true
llama_context: n_ctx_seq (131072) < n_ctx_train (262144) -- the full capacity will not be utilized
llama_kv_cache: size = 4352.00 MiB (131072 cells,  16 layers,  4/1 seqs), K (q8_0): 2176.00 MiB, \
V (q8_0): 2176.00 MiB
llama_memory_recurrent: size =  598.50 MiB (     4 cells,  65 layers,  4 seqs), R (f32):   22.50 \
MiB, S (f32):  576.00 MiB
"""
"""Qwen3.6-27B."""

LLAMACPP_OLD = """\
llama_new_context_with_model: n_ctx      = 32768
llama_new_context_with_model: KV self size  = 1166.62 MiB, c^KV (q8_0): 1166.62 MiB, kv^T: not used
"""
"""ikawrakow/ik_llama.cpp#259: DeepSeek-V3."""

ALL = tuple(
    value for name, value in sorted(globals().items()) if name.isupper() and isinstance(value, str)
)
