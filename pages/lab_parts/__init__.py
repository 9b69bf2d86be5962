"""The parts of the cache lab: what is asked, how it is stepped through, what a step shows."""
