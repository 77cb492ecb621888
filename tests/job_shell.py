"""`python -m tests.job_shell MODULE ARGS`: a shell with job control, as small as can be.

It runs one job in a process group of its own. When the job stops it takes the terminal back,
says so with the state of the terminal, and continues the job at the next line of input.
"""

from __future__ import annotations

import os
import signal
import sys
import termios


def main() -> int:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        flags = termios.tcgetattr(0)[3]
        is_cooked = flags & termios.ICANON and flags & termios.ECHO
        print(f"stopped, {'cooked' if is_cooked else 'raw'}", flush=True)  # noqa: T201
        sys.stdin.readline()
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main())
