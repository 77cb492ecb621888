"""`python -m tests.bare_chat ARGS`: the program as installed without a bundled pair."""

from __future__ import annotations

import sys
from unittest import mock

from ds4chat import paths
from ds4chat.cli.main import main
from tests.scripted_chat import make_link

if __name__ == "__main__":
    with mock.patch.object(paths, "nano_dir", lambda: None):
        status = main(sys.argv[1:], make_link)
    sys.exit(status)
