"""Where the target's servers may be asked for metrics: chosen with care, since asking is a request.

A listening socket of an inference process need not speak HTTP: rendezvous stores, message queues
and debuggers listen too, and a GET makes some of them complain. So a port is asked when the command
line names it, when it is the usual one of a known server, or when it is an ordinary service port;
ports that the kernel hands out at random, and those of known other protocols, are left alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from bottletop.linux import procfs
from bottletop.roots import read_bytes, read_record
from bottletop.servers.catalog import engines
from bottletop.servers.http_get import Place
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from bottletop.roots import Roots

MAX_PLACES = 8
OTHER_PROTOCOLS = frozenset(
    {22, 25, 53, 2049, 2379, 2380, 3306, 4369, 5432, 5672, 5678, 6379, 9092, 9229, 11211, 27017}
    | {29400, 29500}  # torch's rendezvous
)
EPHEMERAL_FROM = 32_768
"""Where net.ipv4.ip_local_port_range begins unless the host says otherwise."""

_PORT_OPTION = re.compile(
    rb"(?:^|\0)--?(?:[a-z]+[-_])*port(?:=|\0)(\d{1,5})(?=\0|$)", re.IGNORECASE
)
_LOCAL = re.compile(rb"\|-- (\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL")


class Candidate(NamedTuple):
    """One address that may be asked."""

    place: Place
    why: str


class Places(NamedTuple):
    """What may be asked, best first, and what is left alone and why."""

    candidates: tuple[Candidate, ...]
    left_alone: tuple[str, ...]


def hinted_ports(roots: Roots, pids: Iterable[int]) -> frozenset[int]:
    """Ports that the command lines of processes name: `--port 8000`, `--metrics-port=9000`."""
    found: set[int] = set()
    for pid in pids:
        try:
            line = b"\0".join(procfs.read_argv(roots, pid))
        except OSError:
            continue
        found |= {int(port) for port in _PORT_OPTION.findall(line)}
    return frozenset(found)


def choose(roots: Roots, pid: int, addresses: Sequence[str], hinted: frozenset[int]) -> Places:
    """Rank the addresses of `linux.sockets.listening` of process `pid`."""
    usual = {port for engine in engines() for port in engine.ports}
    ephemeral = _ephemeral_from(roots)
    elsewhere = _namespace(roots, str(pid)) not in {_namespace(roots, "self"), ""}
    own = _own_addresses(roots, pid) if elsewhere else ()
    ranked: list[tuple[int, Candidate]] = []
    left: list[str] = []
    for address in addresses:
        host, port, unix = _parts(address)
        if unix:
            path = f"{roots.proc}/{pid}/root{unix}" if unix.startswith("/") else ""
            if path:
                place = Place(clean(unix, 108), unix_path=path)
                ranked.append((3, Candidate(place, "a Unix socket")))
            continue
        rank, why = _rank(port, hinted, usual, ephemeral)
        if not rank:
            left.append(f"{address}: {why}")
            continue
        places = _reachable(host, port, own, elsewhere=elsewhere)
        if not places:
            left.append(f"{address}: on the loopback of another network namespace")
        ranked += [(rank, Candidate(place, why)) for place in places]
    ranked.sort(key=lambda one: one[0])
    best: dict[Place, Candidate] = {}
    for _, candidate in ranked:
        best.setdefault(candidate.place, candidate)
    return Places(tuple(best.values())[:MAX_PLACES], tuple(left))


def _rank(port: int, hinted: frozenset[int], usual: Set[int], ephemeral: int) -> tuple[int, str]:
    if port in hinted:
        return 1, "its command line names the port"
    if port in OTHER_PROTOCOLS:
        return 0, "the port of another protocol"
    if port in usual:
        return 2, "the usual port of a known server"
    if port >= ephemeral:
        return 0, "a port that the kernel handed out, which no option names"
    return 4, "it listens there"


def _reachable(host: str, port: int, own: Sequence[str], *, elsewhere: bool) -> list[Place]:
    """Loopback, or the target's own addresses where it has a network namespace of its own."""
    anywhere = host in {"0.0.0.0", "::"}
    if elsewhere:
        if anywhere:
            return [Place(address, port) for address in own[:2]]
        return [Place(host, port)] if host in own else []
    if host == "::":
        return [Place("127.0.0.1", port), Place("::1", port)]
    return [Place("127.0.0.1" if anywhere else host, port)]


def _parts(address: str) -> tuple[str, int, str]:
    """Host, port and Unix path of an address as `linux.sockets` writes it."""
    if address.startswith("unix:"):
        return "", 0, address[5:]
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port), ""


def _namespace(roots: Roots, pid: str) -> str:
    try:
        return os.readlink(f"{roots.proc}/{pid}/ns/net")
    except OSError:
        return ""


def _own_addresses(roots: Roots, pid: int) -> tuple[str, ...]:
    """IPv4 addresses of the process's network namespace, loopback left out."""
    try:
        raw = read_bytes(f"{roots.proc}/{pid}/net/fib_trie", 256 * 1024)
    except OSError:
        return ()
    found = dict.fromkeys(address.decode("ascii") for address in _LOCAL.findall(raw))
    return tuple(address for address in found if not address.startswith("127."))


def _ephemeral_from(roots: Roots) -> int:
    try:
        return int(read_record(f"{roots.proc}/sys/net/ipv4/ip_local_port_range").split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_FROM
