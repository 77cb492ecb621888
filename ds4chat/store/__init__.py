"""Transcripts on disk."""
