"""What can go wrong between here and a server, each with the sentence a reader needs.

No message ever holds a key: what a server says is quoted only where it repeats no part of one.
"""

from __future__ import annotations


class ServingError(Exception):
    """A request that did not work out; the message says what happened and what to do."""


class AddressError(ServingError):
    """An address that may not, or cannot, be called."""


class KeyRefused(ServingError):
    """The server wants a key, or another one (401, 403); or the key cannot be sent at all."""


class NoConnection(ServingError):
    """Nobody answers at the address."""


class TimedOut(ServingError):
    """The server took longer than was allowed."""


class Dropped(ServingError):
    """The answer ended before it was whole. `partial` is the part that came (an Answer)."""

    def __init__(self, message: str, partial: object = None) -> None:
        super().__init__(message)
        self.partial = partial


class NotAnApi(ServingError):
    """Something answers, but not an OpenAI-compatible API."""


class NoSuchModel(ServingError):
    """The server does not serve the model asked for."""


class TooManyRequests(ServingError):
    """429. `retry_after` in seconds; None where the server did not say."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BadRequest(ServingError):
    """The server understood the request and refused it (400, 413, 422)."""


class ServerFault(ServingError):
    """The server failed (5xx, or an error inside its stream)."""


class CapReached(ServingError):
    """The experiment would go past the requests or tokens agreed on."""


class Stopped(ServingError):
    """Somebody pressed Stop."""
