"""The parts of the page about a server of one's own."""
