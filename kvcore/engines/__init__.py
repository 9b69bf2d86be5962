"""What serving engines reserve for the KV cache: their rules, their logs, and the two compared."""
