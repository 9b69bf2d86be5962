"""The parts of the sharing-heads page: the shape asked for, what it saves, what was measured."""
