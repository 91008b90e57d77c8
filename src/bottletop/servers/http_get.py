"""Asks one HTTP endpoint of a target's server, with bounds on everything.

One GET a call, to a loopback address, an address of the target's own namespace or a Unix socket;
redirects are not followed, nothing of the environment (proxies) is used, no token is ever looked
for. A server that does not answer in time is busy, not down: the metrics of some wait for the
decode step that is under way.

The client and TLS are imported at the first request: most runs make none, and they are a twelfth
of what a dashboard imports.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

CONNECT_S = 0.3
READ_S = 2.0
MAX_PAGE_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class Place(NamedTuple):
    """Where a server listens: host and port, or the path of a Unix socket."""

    host: str
    port: int = 0
    unix_path: str = ""

    def __str__(self) -> str:
        if self.unix_path:
            return f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Busy(Exception):
    """It accepted and did not answer in time."""


class NoAnswer(Exception):
    """Nobody answers there, or not in HTTP."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    content_type: str
    body: bytes
    asks_for: str
    """The WWW-Authenticate header of a 401."""
    secure: bool


def get(place: Place, path: str, *, secure: bool = False, token: str = "") -> Answer:
    """Ask once. Raises `Busy` and `NoAnswer`."""
    from http.client import HTTPException

    connection = _connection(place, secure=secure)
    headers = {"Accept": "text/plain, application/json;q=0.5", "Connection": "close"}
    headers["User-Agent"] = "bottletop"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        _connect(connection, place)
        deadline_s = time.monotonic() + READ_S
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            body = _body(reply, deadline_s)
        except TimeoutError:
            raise Busy("it accepted the connection and did not answer in time") from None
        except (HTTPException, OSError, ValueError) as error:
            raise NoAnswer(f"it does not answer in HTTP ({type(error).__name__})") from None
        return Answer(
            reply.status,
            reply.headers.get("Content-Type", ""),
            body,
            reply.headers.get("WWW-Authenticate", ""),
            secure,
        )
    finally:
        connection.close()


def _connect(connection: HTTPConnection, place: Place) -> None:
    try:
        if place.unix_path:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(CONNECT_S)
            connection.sock.connect(place.unix_path)
        else:
            connection.connect()
    except TimeoutError:
        raise Busy("it does not accept the connection") from None
    except OSError as error:
        raise NoAnswer(error.strerror or type(error).__name__) from None
    connection.sock.settimeout(READ_S)


def _body(reply: HTTPResponse, deadline_s: float) -> bytes:
    """The body up to its bound. Raises TimeoutError for one that drips in."""
    parts: list[bytes] = []
    size = 0
    while size < MAX_PAGE_BYTES:
        part = reply.read1(_CHUNK_BYTES)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline_s:
            raise TimeoutError
    return b"".join(parts)[:MAX_PAGE_BYTES]


def _connection(place: Place, *, secure: bool) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    if place.unix_path:
        return HTTPConnection("localhost", timeout=CONNECT_S)
    if not secure:
        return HTTPConnection(place.host, place.port, timeout=CONNECT_S)
    import ssl

    # A loopback server's certificate is its own: there is no name to check it against.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(place.host, place.port, timeout=CONNECT_S, context=context)
