"""The recorded tour: what the scripted engine says when no model is there."""

from __future__ import annotations

from ds4chat.demo.script import Failure, Reply, Script

_WELCOME = """\
This is a **recorded tour**: a scripted engine, not a model. Nothing here was computed by one, \
and the speeds are made up. What you see is how `ds4chat` shows a reply:

1. Tokens arrive in *blocks*: DSpark drafts up to five, the target checks them in one pass.
2. Each token is coloured by its origin. Press **F4** to change what the colours mean.
3. The panel on the right (from 100 columns on) counts what drafting bought. **F6** hides it.

Try one of these:

| type | to see |
|---|---|
| `quicksort` | code, where drafting wins |
| `poem` | prose, where it loses and parks itself |
| `explain` | a reply with reasoning (turn it on with `/think`) |
"""

_QUICKSORT = '''\
Here is quicksort in Python. It copies the lists, so it is short rather than fast:

```python
def quicksort(items):
    """Return the items in ascending order."""
    if len(items) <= 1:
        return list(items)
    pivot, *rest = items
    smaller = [item for item in rest if item < pivot]
    larger = [item for item in rest if item >= pivot]
    return quicksort(smaller) + [pivot] + quicksort(larger)


print(quicksort([3, 1, 4, 1, 5, 9, 2, 6]))
```

- **Mean time**: `O(n log n)` comparisons.
- **Worst time**: `O(n²)`, when the list is sorted already.
- **Space**: `O(n)` for the copies.

Code repeats itself, so the drafter is right most of the time. 🚀
'''

_POEM = "  \n".join(
    (
        "The harbour keeps a slower clock than ours:",
        "its hands are gulls, its numerals are tides.",
        "A rope remembers every knot it wore,",
        "a hull forgets the water where it rides.\n",
        "We came for nothing that the maps could name,",
        "and left with salt in pockets, shoes and hair;",
        "the lamp still turns for ships that never came",
        "and writes its one white sentence on the air.",
    )
)

_REASONING = """\
The user wants to know why verifying several tokens costs about as much as making one. \
Decoding is bound by memory: each pass reads all active weights once. Checking six positions \
reads the same weights, so the time hardly grows. The gain is the mean number of tokens that a \
pass keeps. I should say that with few words and one formula.\
"""

_EXPLAIN = """\
### Why speculation can pay

A decode step is limited by *reading weights*, not by arithmetic. One pass over six positions \
reads the same weights as a pass over one.

> speed-up ≈ accept length × plain step / (draft + verify)

With 3.4 tokens a round, 18 ms plain and 34 ms a round that is **1.8x**. With 1.4 tokens it is \
0.7x: then speculation loses, and `ds4chat` parks it. ⚖️
"""

TOUR = Script(
    replies=(
        Reply(answer=_WELCOME, accepts=(4, 5, 3, 5, 2, 4, 5, 3)),
        Reply(answer=_EXPLAIN, thinking=_REASONING, triggers=("explain", "why")),
        Reply(
            answer=_QUICKSORT,
            triggers=("quicksort", "code", "python"),
            accepts=(5, 5, 4, 5, 3, 5, 5, 2),
        ),
        Reply(
            answer=_POEM,
            triggers=("poem", "verse", "prose"),
            accepts=(0, 1, 0, 0, 2, 0, 1, 0),
        ),
        Reply(
            answer="The engine stops after a few words, so that you can see what happens then.",
            triggers=("crash",),
            crash_after=2,
        ),
        Reply(
            answer="",
            triggers=("refuse",),
            refusal=Failure(message="the script refuses this message", hint="type another"),
        ),
    )
)
