"""Bytes on disk: the GGUF directory and the block formats. NumPy only."""
