"""Incremental Markdown for replies: text in, blocks with token provenance out. No terminal here."""
