"""The parts of a V4 block."""
