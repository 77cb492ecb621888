"""`python -m tests.even_engine`: the real engine process with a clock that no stall can move.

Each look at it is a millisecond after the last one, so that what is decided by the time that
lanes took is decided by their work.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from unittest import mock

from ds4chat.engine import host

if __name__ == "__main__":
    looks = itertools.count()
    even = partial(host.Host, clock=lambda: next(looks) * 1e-3)
    with mock.patch.object(host, "Host", even):
        status = host.main(sys.argv[1:])
    host.end(status)
