"""Starting, stopping and cancelling at random moments: `python -m tests.cycles --n 1000`.

A cycle is drawn from its seed: the real engine process, or the real program in a
pseudo-terminal; a moment (loading, reading the prompt, replying, saving, leaving); and what
happens there (cancel, quit, a signal, a terminal that closes). Afterwards no process may be
left, the terminal must be as it was, and what was saved must be whole.
"""
