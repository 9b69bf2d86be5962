"""The parts of the prompt-caching page."""
