"""Scripted engines that are closed when a test ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.protocol.types import (
    ModelInfo,
)
from tests.unit.demo.client import INFO, TEXT, Client, Opener


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.engine.close()
        assert not client.engine.is_alive


@pytest.fixture
def open_client(clients: list[Client]) -> Opener:
    def opener(*replies: Reply, info: ModelInfo = INFO) -> Client:
        client = Client(Script(replies=replies or (Reply(answer=TEXT),), info=info))
        clients.append(client)
        client.start()
        return client

    return opener
