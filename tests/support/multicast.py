"""A multicast port of its own for each test: tests that run at the same time would hear each other's agents."""

import socket

import pytest

from zerochat.agent.nearby import multicast


@pytest.fixture
def own_port(monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(multicast, "PORT", port)
    return port
