"""Fuzzing of everything that reads what others wrote; `python -m tests.fuzz` runs it.

`case` says what a case is, `mutate*` make them from a seed, `targets_*` feed them to the
program, `guard` watches one, `worker` runs many in a process of their own, `keep` makes a
failing one small and saves it.
"""
