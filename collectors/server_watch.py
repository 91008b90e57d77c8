"""One metric endpoint of the target: found, asked, and turned into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, Absent, Row, State
from bottletop.servers.catalog import recognise
from bottletop.servers.exposition import names
from bottletop.servers.http_get import Answer, Busy, NoAnswer, Place, get
from bottletop.servers.reading import Page, read_page
from bottletop.servers.totals import Totals
from bottletop.tables.server import ANSWERS, BUSY, DENIED, GONE, Server
from bottletop.tables.stage import AT_REQUEST_END, Stage, StageTime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.clock import Clock
    from bottletop.model import Metric, ProcessId, Value
    from bottletop.servers.catalog import Engine
    from bottletop.servers.reading import StageTotal

PATHS = ("/metrics", "/metrics/", "/prometheus/metrics", "/api/diagnostics/prometheus")
MAX_STREAK = 4
BUSY_FIRST_S, BUSY_MOST_S = 2.0, 16.0
GONE_WAIT_S = 2.0
SHARE_OF_TIME = 0.05
"""A page that takes long is asked for less often: at most so much of the time is spent on it."""
MAX_WORKERS_ASKED = 4
"""Pages a tick where several workers answer in turn behind one address."""
NO_SUCH = Absent(State.NOT_APPLICABLE, "servers of this kind do not count it")
NOT_EXPORTED = Absent.unsupported("this server does not export it")
NO_TIME_UNDER_WAY = Absent.unsupported("a metric page does not say since when")
NO_LONGEST = Absent.unsupported("a metric page does not say it")
NO_OWN = Absent.unsupported("a histogram does not say how much lies in each step")

_COLUMNS = {metric.name: metric for metric in Server.columns}


class Found(NamedTuple):
    """What asking an address for the first time gave: a page that is known, or why not."""

    engine: Engine | None
    path: str
    secure: bool
    why: str
    busy: bool = False
    refused: bool = False
    """It answers whoever has a token; what forbids it to all (403) may have no metrics at all."""
    unknown: tuple[str, ...] = ()
    """Prefixes on a known page that are not of its server."""


def discover(place: Place, token: str = "") -> Found:
    """Ask an address for a metric page, path by path, plain and then encrypted. Never raises."""
    why = "no metric page"
    for secure in (False, True):
        if secure and place.unix_path:
            break
        for path in PATHS:
            try:
                answer = get(place, path, secure=secure, token=token)
            except Busy as error:
                return Found(None, path, secure, str(error), busy=True)
            except NoAnswer as error:
                why = str(error)
                break  # not in HTTP, or not without encryption
            if answer.status in {401, 403}:
                return Found(None, path, secure, _wants(answer), refused=answer.status == 401)
            found = _recognised(answer, path)
            if found.engine is not None:
                return found
            why = found.why
        else:
            return Found(None, "", secure, why)
    return Found(None, "", False, why)


def _recognised(answer: Answer, path: str) -> Found:
    if answer.status != 200:
        return Found(None, path, answer.secure, f"HTTP status {answer.status}")
    listed = names(answer.body)
    if not listed:
        return Found(None, path, answer.secure, "it answers, but not with metrics")
    engine = recognise(listed)
    if engine is None:
        return Found(
            None, path, answer.secure, f"metrics of an unknown kind: {', '.join(prefixes(listed))}"
        )
    others = prefixes(name for name in listed if engine.local_name(name) is None)
    return Found(engine, path, answer.secure, "", unknown=tuple(others))


def _wants(answer: Answer) -> str:
    scheme = answer.asks_for.split(" ", 1)[0] or "a bearer token"
    return f"it asks for {scheme[:32]}: give it with --metrics-token-file FILE"


def prefixes(listed: Iterable[str]) -> list[str]:
    """First words of metric names, the frequent first, those of the runtimes left out."""
    counts: dict[str, int] = {}
    for name in listed:
        head = name.partition(":")[0] if ":" in name else name.partition("_")[0]
        if head not in {"python", "process", "go", "promhttp"}:
            counts[head] = counts.get(head, 0) + 1
    return sorted(counts, key=lambda head: -counts[head])[:8]


class Endpoint:
    """A metric page that was found. One question at a time; what it said last stays known."""

    def __init__(
        self, clock: Clock, place: Place, engine: Engine, found: Found, token: str
    ) -> None:
        self._clock = clock
        self._place = place
        self._path = found.path
        self._secure = found.secure
        self._token = token
        self._totals = Totals()
        self._due_ns = 0
        self._silent = 0
        self._state = ANSWERS
        self._unknown = ", ".join(found.unknown)
        self._page: Page | None = None
        self._page_bytes = 0
        self._took_s = 0.0
        self._answered_ns = 0
        self.engine = engine
        self.fresh = False
        """Whether the last call of `ask` brought a page."""

    @property
    def key(self) -> str:
        return str(self._place)

    @property
    def port(self) -> int:
        return self._place.port

    @property
    def url(self) -> str:
        scheme = "https" if self._secure else "http"
        return f"{scheme}://{self._place}{self._path}"

    @property
    def is_lost(self) -> bool:
        """Nobody has answered several times in a row: look for it anew."""
        return self._state == GONE and self._silent >= MAX_STREAK

    def ask(self) -> None:
        """Ask if it is due. Never raises."""
        self.fresh = False
        began_ns = self._clock.monotonic_ns()
        if began_ns < self._due_ns:
            return
        asked = 0
        while asked < self._workers_to_ask():
            asked += 1
            if not self._ask_once():
                break
        took_s = (self._clock.monotonic_ns() - began_ns) / NS_PER_S
        self._took_s = took_s / asked
        self._due_ns = began_ns + round(self._wait_s(took_s) * NS_PER_S)

    def _workers_to_ask(self) -> int:
        """More than one where pages have come from several processes."""
        return min(self._totals.workers, MAX_WORKERS_ASKED) or 1

    def _wait_s(self, took_s: float) -> float:
        if self._state == BUSY:
            return min(BUSY_FIRST_S * (1 << min(self._silent, 4)), BUSY_MOST_S)
        if self._state == GONE:
            return GONE_WAIT_S
        return max(0.95, took_s / SHARE_OF_TIME)

    def _ask_once(self) -> bool:
        try:
            answer = get(self._place, self._path, secure=self._secure, token=self._token)
        except (Busy, NoAnswer) as error:
            self._state = BUSY if isinstance(error, Busy) else GONE
            self._silent += 1
            return False
        if answer.status != 200:
            self._state = DENIED if answer.status in {401, 403} else GONE
            self._silent += 1
            return False
        self._state, self._silent, self.fresh = ANSWERS, 0, True
        self._answered_ns = self._clock.monotonic_ns()
        self._page_bytes = len(answer.body)
        self._page = read_page(answer.body, self.engine)
        self._totals.take(self._page.worker, _counters(self._page))
        return True

    # -- rows ---------------------------------------------------------------------------------

    def row(self) -> Row:
        """The row of `server`."""
        now_ns = self._clock.monotonic_ns()
        if self._state != ANSWERS or self._page is None:
            absent = Absent(State.STALE, _SILENCE[self._state])
            cells: dict[Metric, Value] = dict.fromkeys(Server.columns, absent)
        else:
            cells = dict.fromkeys(Server.columns, NO_SUCH)
            cells |= {_COLUMNS[one.column]: NOT_EXPORTED for one in self.engine.sources}
            now_ns = self._answered_ns if self.fresh else now_ns
            for name, value in self._page.columns.items():
                cells[_COLUMNS[name]] = self._totals.total.get(name, value)
            cells[Server.parts] = max(self._page.parts.values(), default=1)
            cells[Server.workers] = max(1, self._totals.workers)
            cells[Server.scrape_s] = self._took_s
            cells[Server.page_bytes] = self._page_bytes
        models = ", ".join(self._page.models) if self._page else ""
        cells |= {
            Server.engine: self.engine.name,
            Server.url: self.url,
            Server.state: self._state,
            Server.models: models or NOT_EXPORTED,
            Server.unknown: self._unknown,
        }
        return Server.row(self.key, now_ns, cells)

    def stage_rows(self, root: ProcessId) -> tuple[list[Row], list[Row]]:
        """Rows of `stage` and `stage_time` of the last page."""
        if self._page is None:
            return [], []
        stages: list[Row] = []
        times: list[Row] = []
        for one in self._page.stages:
            source = f"{self.engine.name} metrics" + (AT_REQUEST_END if one.lagging else "")
            key = f"{root.key}/{one.stage} ({self.key})"
            nanoseconds = self._total_ns(one.stage)
            calls = self._totals.total.get(f"{one.stage}/calls")
            values: dict[Metric, Value] = {
                Stage.stage: one.stage,
                Stage.source: source,
                Stage.pid: root.pid,
                Stage.calls: NOT_EXPORTED if calls is None else round(calls),
                Stage.inclusive_ns: nanoseconds,
                Stage.self_ns: nanoseconds,
                Stage.occupied_ns: nanoseconds,
                Stage.in_flight: self._in_flight(one.stage),
                Stage.in_flight_ns: NO_TIME_UNDER_WAY,
                Stage.longest_ns: NO_LONGEST,
                Stage.gone: 0,
            }
            stages.append(Stage.row(key, self._answered_ns, values))
            times += self._step_rows(root, one, source)
        return stages, times

    def _in_flight(self, stage: str) -> Value:
        """Requests in the queue; of other stages the page does not say it."""
        waiting = self._page.columns.get("waiting") if self._page and stage == "queue" else None
        return NOT_EXPORTED if waiting is None else round(waiting)

    def _total_ns(self, stage: str) -> int:
        return round(self._totals.total.get(f"{stage}/seconds", 0.0) * NS_PER_S)

    def _step_rows(self, root: ProcessId, one: StageTotal, source: str) -> list[Row]:
        """Passes by duration, from the cumulative buckets of the page."""
        rows: list[Row] = []
        below, low_s = 0.0, 0.0
        for index, (high_s, _) in enumerate(one.buckets):
            up_to = self._totals.total.get(f"{one.stage}/{high_s!r}", 0.0)
            calls, below = max(0.0, up_to - below), max(up_to, below)
            if calls > 0:
                infinite = high_s == float("inf")
                values: dict[Metric, Value] = {
                    StageTime.calls: round(calls),
                    StageTime.inclusive_ns: NO_OWN,
                    StageTime.from_ns: round(low_s * NS_PER_S),
                    StageTime.to_ns: NO_END if infinite else round(high_s * NS_PER_S),
                    StageTime.source: source,
                }
                key = f"{root.key}/{one.stage}#{self.key}/{index}"
                rows.append(StageTime.row(key, self._answered_ns, values))
            low_s = high_s
        return rows


NO_END = Absent(State.NOT_APPLICABLE, "the last step has no upper end")
_SILENCE = {
    BUSY: "it accepted and did not answer in time: busy",
    DENIED: "it asks for a token now",
    GONE: "nobody answers there now",
    ANSWERS: "not asked yet",
}
_GAUGES = frozenset(metric.name for metric in Server.columns if metric.kind.name == "GAUGE")


def _counters(page: Page) -> dict[str, float]:
    """Everything on a page that only grows, by a name of ours."""
    found = {name: value for name, value in page.columns.items() if name not in _GAUGES}
    for one in page.stages:
        found[f"{one.stage}/seconds"] = one.seconds
        if one.calls is not None:
            found[f"{one.stage}/calls"] = one.calls
        for edge, count in one.buckets:
            found[f"{one.stage}/{edge!r}"] = count
    return found
