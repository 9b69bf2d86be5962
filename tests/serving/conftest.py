"""A client for a fake server, and a transport that says where it would have connected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kvcore.serving import Client, Key, Timeouts, policy
from tests.serving.fake_server import FakeClock, FakeServer, fake_server

QUICK = Timeouts(connect=2.0, silence=0.5, answer=5.0)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[Client, FakeServer]]]:
    """`serve(fault="hang")` gives a client and the fake server it talks to.

    With `clock=FakeClock()` the server does not really wait, and the client reads that clock.
    """
    with ExitStack() as stack:

        def start(
            key: str = "",
            timeouts: Timeouts = QUICK,
            clock: FakeClock | None = None,
            **behaviour: object,
        ) -> tuple[Client, FakeServer]:
            if clock is not None:
                behaviour["sleep"] = clock.sleep
            server = stack.enter_context(fake_server(**behaviour))
            target = policy(None, app_is_local=True).target(server.url)
            client = stack.enter_context(
                Client(target, Key(key), timeouts, clock=clock or time.monotonic)
            )
            return client, server

        yield start
