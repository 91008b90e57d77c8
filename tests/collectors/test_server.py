"""Metric pages of real HTTP servers in this process, asked by the collector."""

from __future__ import annotations

import dataclasses
import http.server
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hosttree import of_table, only, target_of

from bottletop.clock import ManualClock
from bottletop.collectors import server, server_watch
from bottletop.collectors.base import Context, Ways
from bottletop.collectors.server import ServerCollector
from bottletop.model import Absent, ProcessId, State
from bottletop.roots import Roots
from bottletop.tables import Server, Stage, StageTime
from bottletop.tables.server import ANSWERS, BUSY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = ProcessId(4_194_303, 7)
PAGE = """\
vllm:num_requests_waiting{{model_name="m"}} 7
vllm:num_preemptions_total{{model_name="m"}} {n}
vllm:request_queue_time_seconds_sum{{model_name="m"}} {seconds}
vllm:request_queue_time_seconds_count{{model_name="m"}} {n}
vllm:request_queue_time_seconds_bucket{{model_name="m",le="0.3"}} 0
vllm:request_queue_time_seconds_bucket{{model_name="m",le="+Inf"}} {n}
process_start_time_seconds {start}
"""


class Web:
    """A server on a loopback port; `answer` decides what it says: (status, body)."""

    def __init__(self) -> None:
        self.answer: Callable[[str], tuple[int, bytes]] = lambda path: (404, b"")
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append((self.path, self.headers.get("Authorization", "")))
                status, body = web.answer(self.path)
                self.send_response(status)
                for name, value in web.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.port: int = self._server.server_address[1]

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.end()


@dataclasses.dataclass
class Watching:
    """A collector whose target listens on `web`."""

    collector: ServerCollector
    context: Context
    clock: ManualClock

    def read(self, seconds: float = 1.0):
        self.clock.advance(seconds)
        return self.collector.read()


def watching(web: Web, monkeypatch: pytest.MonkeyPatch, ways: Ways | None = None) -> Watching:
    clock = ManualClock()
    context = Context(clock, Roots(), target=lambda: target_of(ROOT), ways=ways or Ways())
    context.exchange.listening = (f"127.0.0.1:{web.port}",)
    monkeypatch.setattr(
        "bottletop.collectors.server.hinted_ports", lambda roots, pids: frozenset({web.port})
    )
    return Watching(ServerCollector(context), context, clock)


def page(n: int, seconds: float, start: int = 1) -> tuple[int, bytes]:
    return 200, PAGE.format(n=n, seconds=seconds, start=start).encode()


def test_a_page_becomes_a_server_and_stages(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watching(web, monkeypatch)
    web.answer = lambda path: page(10, 8.0) if path == "/metrics" else (404, b"")
    watch.read()
    web.answer = lambda path: page(15, 12.5)
    samples = watch.read()
    row = only(of_table(samples, Server))
    assert (row["engine"], row["state"], row["waiting"]) == ("vLLM", ANSWERS, 7)
    assert row["preemptions"] == 15
    assert isinstance(row["running"], Absent), "the page does not say how many run"
    stage = only(of_table(samples, Stage))
    assert (stage["stage"], stage["calls"], stage["inclusive_ns"]) == ("queue", 15, 12_500_000_000)
    assert stage["source"] == "vLLM metrics, at request end"
    assert stage["in_flight"] == 7
    step = only(of_table(samples, StageTime))
    assert (step["calls"], step["from_ns"]) == (15, 300_000_000)
    assert watch.context.exchange.metrics == f"vLLM at http://127.0.0.1:{web.port}/metrics"
    assert all(authorisation == "" for _, authorisation in web.asked)


def test_what_nobody_knows_on_a_known_page_is_named(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = b"weather_celsius 3\npython_gc_objects 4\nqueue:depth 2\n"
    web.answer = lambda path: (200, page(1, 1.0)[1] + extra)
    row = only(of_table(watching(web, monkeypatch).read(), Server))
    assert row["unknown"] == "weather, queue"


def test_two_workers_behind_one_address_are_added_up(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = iter(range(100))
    count = {1: 100, 2: 4}

    def answer(path: str) -> tuple[int, bytes]:
        worker = 1 + next(turns) % 2
        count[worker] += 10
        return page(count[worker], 0.0, start=worker)

    web.answer = answer
    watch = watching(web, monkeypatch)
    for _ in range(5):
        samples = watch.read()
    row = only(of_table(samples, Server))
    assert row["workers"] == 2
    # Worker 1 answered whether there is a page at all, worker 2 the first that counts (14); when
    # worker 1 came back it stood at 120, and what it had done before is not known to be new.
    assert row["preemptions"] == count[2] + (count[1] - 120)


def test_a_server_that_does_not_answer_is_busy_and_not_down(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bottletop.servers.http_get.READ_S", 0.05)
    release = threading.Event()
    watch = watching(web, monkeypatch)
    web.answer = lambda path: page(1, 1.0)
    watch.read()

    def stuck(path: str) -> tuple[int, bytes]:
        release.wait(10)
        return page(1, 1.0)

    web.answer = stuck
    try:
        samples = watch.read()
        row = only(of_table(samples, Server))
        assert row["state"] == BUSY
        assert isinstance(row["waiting"], Absent)
        assert row["waiting"].state is State.STALE
        assert of_table(samples, Stage) == {}, "nothing new is said about stages"
        asked = len(web.asked)
        watch.read()
        assert len(web.asked) == asked, "a busy server is left alone for a while"
    finally:
        release.set()


def test_a_page_that_asks_for_a_token_gets_the_one_that_was_given(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.headers = {"WWW-Authenticate": 'Bearer realm="x"'}
    web.answer = lambda path: (401, b"")
    watch = watching(web, monkeypatch)
    watch.read()
    said = watch.context.exchange.metrics
    assert isinstance(said, Absent)
    assert said.state is State.DENIED, "it can be unlocked"
    assert "--metrics-token-file" in said.reason
    given = watching(web, monkeypatch, Ways(token="secret-1"))
    web.answer = lambda path: page(1, 1.0)
    given.read()
    assert web.asked[-1] == ("/metrics", "Bearer secret-1")
    assert "secret-1" not in repr(given.context)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (403, b"", "--metrics-token-file"),
        (404, b"", "HTTP status 404"),
        (302, b"", "HTTP status 302"),
        (200, b"<html>chat</html>", "not with metrics"),
        (200, b"weather_celsius 3\n", "unknown kind: weather"),
    ],
)
def test_what_is_no_metric_page_is_said_and_not_asked_again_at_once(
    web: Web, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, why: str
) -> None:
    web.answer = lambda path: (status, body)
    web.headers = {"Location": "http://192.0.2.1/metrics"}
    watch = watching(web, monkeypatch)
    samples = watch.read()
    assert of_table(samples, Server) == {}
    said = watch.context.exchange.metrics
    assert isinstance(said, Absent)
    assert said.state is State.NOT_APPLICABLE
    assert why in said.reason
    asked = len(web.asked)
    watch.read(30)
    assert len(web.asked) == asked
    watch.read(31)
    assert len(web.asked) > asked


def test_nobody_is_asked_where_the_user_says_so(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watching(web, monkeypatch, Ways(scrape=False))
    assert list(watch.read()) == []
    assert web.asked == []
    assert str(watch.context.exchange.metrics).endswith("--no-scrape")


def test_a_page_that_takes_long_is_asked_for_less_often(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(web, monkeypatch)

    def slow(path: str) -> tuple[int, bytes]:
        watch.clock.advance(0.2)
        return page(1, 1.0)

    web.answer = slow
    watch.read()
    watch.read()
    asked = len(web.asked)
    watch.read()
    watch.read()
    assert len(web.asked) == asked
    watch.read(3)
    assert len(web.asked) == asked + 1


def test_a_server_that_ends_is_gone_and_looked_for_again(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watching(web, monkeypatch)
    web.answer = lambda path: page(1, 1.0)
    watch.read()
    web.answer = lambda path: (500, b"")
    for _ in range(server_watch.MAX_STREAK + 2):
        samples = watch.read(5)
    assert of_table(samples, Server) == {}
    web.answer = lambda path: page(2, 2.0)
    watch.read(server.LOOK_AGAIN_S)
    assert only(of_table(watch.read(), Server))["state"] == ANSWERS


def test_a_page_without_end_is_cut_off_and_read_as_far_as_it_goes(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bottletop.servers.http_get.MAX_PAGE_BYTES", 100_000)
    web.answer = lambda path: (200, page(3, 3.0)[1] + b"vllm:filler 1\n" * 100_000)
    watch = watching(web, monkeypatch)
    row = only(of_table(watch.read(), Server))
    assert row["preemptions"] == 3
    assert row["page_bytes"] == 100_000
