"""The address of a server of ours, taken before what takes long: that may have been in vain."""

from __future__ import annotations

import socket

from pkv_lint.prompt.errors import InputError


def bound(host: str, port: int) -> socket.socket:
    """A socket with an address, to be listened on. Raises InputError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio lets small events out at once (TCP_NODELAY) only where the protocol is stated.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter for what is no host name at all
        raise InputError(f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from None
    return listener
