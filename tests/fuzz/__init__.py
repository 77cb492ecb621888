"""Fuzzing of everything that reads what others wrote; `python -m tests.fuzz` runs it.

`case` says what a case is, `mutate*` make them from a seed, `targets_*` feed them to the
program, `guard` watches one, `worker` runs many in a process of their own, `keep` makes a
failing one small and saves it.

Cases are a megabyte or so at most. JSON takes up to 25 times its bytes as Python's objects, so
for protocol lines and transcripts, whose lines may have 64 MB, the bar of memory holds up to
about 3 MB of hostile structure only; text takes no more than its bytes.
"""
