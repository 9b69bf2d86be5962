"""The parts of the live timing page: what is run, how it stands, what it showed."""
