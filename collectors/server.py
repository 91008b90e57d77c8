"""Inference servers of the target by their own metric pages. Fills `server`, `stage`, `stage_time`.

Sockets on which the target listens are asked for a metric page, those that are likely ones first
(`server_places`), each at most once a minute until one is found. Which server it is follows from
the names on the page; what they mean stands in `bottletop.servers.catalog`. Asking is the only
thing done to the target, once a second at most, one question at a time, and less often when the
answers take long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.collectors.server_places import Candidate, choose, hinted_ports
from bottletop.model import NS_PER_S, Absent, State
from bottletop.tables.server import Server
from bottletop.tables.stage import Stage, StageTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.collectors.server_watch import Endpoint
    from bottletop.model import ProcessId, Row, Sample, Table, Target

LOOK_AGAIN_S = 60
LOOK_SOON_S = 10
"""Where a page was before, or where somebody accepted and was too busy to answer."""
MAX_ENDPOINTS = 8
NOT_ASKED = Absent(State.NOT_APPLICABLE, "left out: --no-scrape")
CAPTURED = Absent(State.NOT_APPLICABLE, "a captured host has nobody to ask")
NO_SOCKET = Absent(State.NOT_APPLICABLE, "it listens on no socket")


class ServerCollector(FileCollector):
    """Rows for each metric endpoint of the target's tree, and for the stages that it knows."""

    name: ClassVar[str] = "server"
    tables: ClassVar[tuple[type[Table], ...]] = (Server, Stage, StageTime)
    blocking: ClassVar[bool] = True
    of_target: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._root: ProcessId | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self._due_ns: dict[str, int] = {}
        self._answers: dict[str, str] = {}
        """Why an address that was asked is no endpoint."""
        self._refused: set[str] = set()
        """Those of them that ask for a token."""
        self._addresses: tuple[str, ...] = ()
        self._candidates: tuple[Candidate, ...] = ()
        self._left_alone: tuple[str, ...] = ()

    def read(self) -> Sequence[Sample]:
        """Ask what is due. Never raises."""
        target, exchange = self._context.target(), self._context.exchange
        if target is None or target.gone:
            self.close()
            return ()
        if target.root != self._root:
            self.close()
            self._root = target.root
        if not self._roots.live:
            exchange.metrics = CAPTURED
            return ()
        if not self._context.ways.scrape:
            exchange.metrics = NOT_ASKED
            return ()
        began_ns = self._clock.monotonic_ns()
        self._choose(target)
        self._look(began_ns)
        for endpoint in self._endpoints.values():
            endpoint.ask()
        exchange.metrics = self._describe()
        return self._samples(target.root, began_ns)

    def close(self) -> None:
        self._endpoints.clear()
        self._due_ns.clear()
        self._answers.clear()
        self._refused.clear()
        self._addresses, self._candidates, self._left_alone = (), (), ()
        self._root = None

    def _choose(self, target: Target) -> None:
        """Rank the addresses anew when they have changed."""
        listening = self._context.exchange.listening
        addresses = () if isinstance(listening, Absent) else listening
        if addresses == self._addresses:
            return
        self._addresses = addresses
        members = [member.id.pid for member in target.processes]
        if target.front is not None:
            members.append(target.front.pid)
        hinted = hinted_ports(self._roots, members)
        places = choose(self._roots, target.root.pid, addresses, hinted)
        self._candidates, self._left_alone = places.candidates, places.left_alone

    def _look(self, now_ns: int) -> None:
        """Ask one address that has not been asked lately, and forget endpoints that are lost."""
        for key in [key for key, one in self._endpoints.items() if one.is_lost]:
            del self._endpoints[key]
            self._due_ns[key] = now_ns + LOOK_SOON_S * NS_PER_S
        for candidate in self._candidates:
            key = str(candidate.place)
            if key in self._endpoints or now_ns < self._due_ns.get(key, now_ns):
                continue
            if self._is_known_twice(candidate):
                continue
            self._discover(candidate, now_ns)
            if self._endpoints:
                return  # one a read: the first endpoint is asked at once

    def _is_known_twice(self, candidate: Candidate) -> bool:
        """The same port over IPv6, where its IPv4 address has answered."""
        port = candidate.place.port
        return any(port and one.port == port for one in self._endpoints.values())

    def _discover(self, candidate: Candidate, now_ns: int) -> None:
        # What speaks HTTP and reads pages is imported when there is somebody to ask.
        from bottletop.collectors.server_watch import Endpoint, discover

        key = str(candidate.place)
        token = self._context.ways.token
        found = discover(candidate.place, token)
        wait_s = LOOK_SOON_S if found.busy else LOOK_AGAIN_S
        self._due_ns[key] = now_ns + wait_s * NS_PER_S
        self._refused.discard(key)
        if found.engine is None:
            self._answers[key] = found.why
            if found.refused:
                self._refused.add(key)
            return
        self._answers.pop(key, None)
        if len(self._endpoints) < MAX_ENDPOINTS:
            self._endpoints[key] = Endpoint(
                self._clock, candidate.place, found.engine, found, token
            )

    def _describe(self) -> str | Absent:
        """How the servers are read, or why they are not."""
        if self._endpoints:
            return "; ".join(f"{one.engine.name} at {one.url}" for one in self._endpoints.values())
        # What a token would open comes first, and is not cut away.
        order = sorted(self._answers, key=lambda address: address not in self._refused)
        said = [f"{address}: {self._answers[address]}" for address in order]
        said += self._left_alone
        if not said:
            return NO_SOCKET
        state = State.DENIED if self._refused else State.NOT_APPLICABLE
        return Absent(state, "no metric page: " + "; ".join(said)[:300])

    def _samples(self, root: ProcessId, began_ns: int) -> list[Sample]:
        servers = [one.row() for one in self._endpoints.values()]
        samples = [self.sample(Server, began_ns, servers)]
        # Without a new page there is nothing new about stages: they grow old, openly.
        if any(one.fresh for one in self._endpoints.values()):
            stages: list[Row] = []
            times: list[Row] = []
            for one in self._endpoints.values():
                of_stage, of_time = one.stage_rows(root)
                stages += of_stage
                times += of_time
            samples.append(self.sample(Stage, began_ns, stages))
            samples.append(self.sample(StageTime, began_ns, times))
        return samples
