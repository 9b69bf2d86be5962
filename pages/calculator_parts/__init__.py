"""The parts of the memory calculator: what is asked, what is answered, what lies behind."""
