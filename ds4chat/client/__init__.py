"""Starts the engine process and speaks the protocol with it."""
