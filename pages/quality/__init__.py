"""The parts of the cache quality page: what is asked, what runs, what came out."""
