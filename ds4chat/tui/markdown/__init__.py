"""Incremental Markdown: text in, blocks with token provenance out. Knows no terminal."""
