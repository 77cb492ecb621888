"""One file a block format: a decoder and a record."""
