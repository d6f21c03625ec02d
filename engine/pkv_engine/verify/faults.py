"""What can go wrong with a request, by name."""

from __future__ import annotations

import ssl
from enum import StrEnum

import httpx


class Fault(StrEnum):
    """Why a request has no answer to compare. The values are the names in reports."""

    UNREACHABLE = "unreachable"
    TLS = "TLS error"
    TIMED_OUT = "timed out"
    WRONG_MODEL = "wrong model"
    REFUSED = "refused (4xx)"
    SERVER_ERROR = "server error (5xx)"
    UNEXPECTED_STATUS = "unexpected status"
    TRUNCATED = "stream broke off"
    MALFORMED = "malformed reply"
    NO_USAGE = "no usage"
    WRONG_USAGE = "wrong usage"
    NOT_SENT = "not sent"

    @property
    def no_server(self) -> bool:
        """Whether there may be nobody who answers."""
        return self in (Fault.UNREACHABLE, Fault.TLS, Fault.TIMED_OUT)

    @property
    def untouched(self) -> bool:
        """Whether the request surely left the cache alone."""
        return self in (Fault.UNREACHABLE, Fault.TLS, Fault.WRONG_MODEL, Fault.REFUSED, Fault.NOT_SENT)


def fault_of(error: httpx.RequestError, *, begun: bool) -> Fault:
    """The fault that an exception stands for; `begun` tells whether a part of the reply had come."""
    if isinstance(error, httpx.TimeoutException):
        return Fault.TIMED_OUT
    if _is_tls(error):
        return Fault.TLS
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
        return Fault.UNREACHABLE
    return Fault.TRUNCATED if begun else Fault.MALFORMED


def _is_tls(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def fault_of_status(status: int, message: str) -> Fault:
    """The fault that a status stands for; servers answer an unknown model with 404, some with 400."""
    if status == 404 and "model" in message.lower():
        return Fault.WRONG_MODEL
    if 400 <= status < 500:
        return Fault.REFUSED
    return Fault.SERVER_ERROR if status >= 500 else Fault.UNEXPECTED_STATUS
