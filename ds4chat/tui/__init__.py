"""The full-screen chat."""
