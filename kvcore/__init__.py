"""Everything about the KV cache that can be computed, simulated or measured."""
