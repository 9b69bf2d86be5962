"""Protections, and the proof that their tests can fail."""
