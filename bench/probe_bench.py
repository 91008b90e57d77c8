"""What the stage probe costs: a span, an import, and its effect on a program that is watched.

    python bench/probe_bench.py [--pairs 40] [--run-s 0.4] [--json FILE]

Cost of a span: the fastest of many short loops, an empty loop taken off, under every CPython that
is found; and the median of single spans with a millisecond of other work before each, which finds
the caches as that work and the neighbours on the host left them. Tasks: alone in their stage, and
fifty in it at the same time. Beside each: what a million additions took at the same time, since a
span costs more where everything does.

Effect: each pair is one new process that does the same fixed work twice, in turns of one request
(some 7 ms of work in two nested stages): with the probe on and its stages collected once a second,
and with stages that do nothing, unwatched. Who begins changes from turn to turn and from pair to
pair, so that a machine that slows down slows both down; longer turns measured the machine. One
process does both, since where a program's memory happens to lie makes it a few percent faster or
slower, which is more than what is to be measured. Where rights allow it runs before everything else
(SCHED_FIFO), so that what else the machine does counts for little.

Budgets: 1 us enabled, 0.1 us disabled; the 95 % interval of the ratio includes 1 with a half-width
of 1 % or less.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from probelab import INTERPRETERS, OWN, Interpreter, identify  # noqa: E402

from bottletop.clock import SystemClock  # noqa: E402
from bottletop.collectors.base import Context  # noqa: E402
from bottletop.collectors.stage import StageCollector  # noqa: E402
from bottletop.launch import with_probe  # noqa: E402
from bottletop.model import Target, TargetProcess  # noqa: E402
from bottletop.roots import Roots  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COLLECT_EVERY_S = 1.0

SPANS = r"""
import json, statistics, sys, timeit
import asyncio  # as in a server: then the probe must ask for a running loop at each span
from bottletop.probe import stage
@stage("call")
def call(): pass
def plain(): pass
def spans(n):
    for _ in range(n):
        with stage("a"): pass
def nested(n):
    for _ in range(n):
        with stage("a"):
            with stage("b"): pass
def calls(n):
    for _ in range(n): call()
def plain_calls(n):
    for _ in range(n): plain()
def empty(n):
    for _ in range(n): pass
async def tasks(n):
    for _ in range(n):
        with stage("task"): pass
async def in_turns(n, stage):
    for _ in range(n):
        with stage("turn"): await asyncio.sleep(0)
async def fifty(stage):
    await asyncio.gather(*[in_turns(20, stage) for _ in range(50)])
class Nothing:
    def __enter__(self): pass
    def __exit__(self, *how): pass
def million():
    s = 0
    for _ in range(1000000): s += 1
N = 2000
best = {}
nothing = Nothing()
for turn in range(int(sys.argv[1])):
    if turn % 10 == 0:
        best["million"] = min(timeit.timeit(million, number=1), best.get("million", 1e9))
    for f in (empty, spans, nested, calls, plain_calls):
        took = timeit.timeit(lambda: f(N), number=1) / N * 1e9
        best[f.__name__] = min(took, best.get(f.__name__, took))
loop = asyncio.new_event_loop()
for turn in range(int(sys.argv[1])):
    took = timeit.timeit(lambda: loop.run_until_complete(tasks(N)), number=1) / N * 1e9
    best["task"] = min(took, best.get("task", took))
    for name, one in (("fifty", stage), ("fifty_plain", lambda name: nothing)):
        took = timeit.timeit(lambda: loop.run_until_complete(fifty(one)), number=1) / 1000 * 1e9
        best[name] = min(took, best.get(name, took))
loop.close()
def grind(n):
    x = 0
    for i in range(n): x = (x * 31 + i) % 1000003
def one(): spans(1)
def none(): empty(1)
apart = {one: [], none: []}
for turn in range(int(sys.argv[1])):
    for f in apart:
        grind(15000)
        apart[f].append(timeit.timeit(f, number=1) * 1e9)
between = [statistics.median(apart[f]) for f in (one, none)]
print(json.dumps({
    "span_among_work": between[0] - between[1],
    "span": best["spans"] - best["empty"],
    "nested_pair": best["nested"] - best["empty"],
    "decorated_call": best["calls"] - best["plain_calls"],
    "span_in_task": best["task"] - best["empty"],
    "span_in_one_of_50_tasks": best["fifty"] - best["fifty_plain"],
    "million_additions": best["million"] * 1e9,
}))
"""

IMPORT = r"""
import time
began = time.perf_counter()
import bottletop.probe
print(time.perf_counter() - began)
"""

WORK = r"""
import sys, time
import bottletop.probe as probe
from bottletop.probe import stage
def nothing(name):
    return probe._OFF  # what stage() returns when the probe is off
def grind(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x
def request(stage):
    with stage("request"):
        with stage("forward"): grind(100000)
request(stage), request(nothing)
for line in sys.stdin:
    which = stage if line == "probed\n" else nothing
    began, cpu = time.perf_counter(), time.process_time()
    request(which)
    print(time.perf_counter() - began, time.process_time() - cpu, flush=True)
"""


def environment(**more: str) -> dict[str, str]:
    """What a program started by `bottletop run` sees."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return with_probe({**kept, **more})


def answer(python: Interpreter, code: str, *arguments: str, **env: str) -> str:
    return subprocess.run(
        [python.path, "-c", code, *arguments],
        env=environment(**env),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def span_costs(python: Interpreter, turns: int) -> dict[str, float]:
    """Nanoseconds a span, enabled and disabled, and milliseconds to import."""
    on = json.loads(answer(python, SPANS, str(turns)))
    off = json.loads(answer(python, SPANS, str(turns), BOTTLETOP_PROBE="0"))
    imports = [float(answer(python, IMPORT)) for _ in range(10)]
    return {
        **{f"{name}_ns": value for name, value in on.items()},
        "disabled_span_ns": off["span"],
        "disabled_decorated_call_ns": off["decorated_call"],
        "disabled_million_additions_ns": off["million_additions"],
        "import_ms": min(imports) * 1000,
    }


class Worker:
    """The program, waiting for work."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [OWN.path, "-c", WORK],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._child.pid
        self.first_in_line = self._put_first()
        self.run(probed=False)  # it has started, and its probe is there to be found

    def _put_first(self) -> bool:
        """Before everything else on the last core that we may use; False without the right."""
        try:
            os.sched_setaffinity(self.pid, {max(os.sched_getaffinity(0))})
            os.sched_setscheduler(self.pid, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            return False
        return True

    def run(self, *, probed: bool) -> tuple[float, float]:
        """Serve one request; wall and CPU seconds."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("probed\n" if probed else "plain\n")
        self._child.stdin.flush()
        wall, cpu = self._child.stdout.readline().split()
        return float(wall), float(cpu)

    def end(self) -> None:
        self._child.communicate()


class Watching:
    """Collects a worker's stages in a thread, while it is let."""

    def __init__(self, pid: int) -> None:
        process = identify(pid)
        target = Target(process, "work", (TargetProcess(process, os.getpid(), "work", "main"),))
        context = Context(SystemClock(), Roots(), target=lambda: target)
        self._collector = StageCollector(context)
        self._on = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()
        self.rows = 0

    def _collect(self) -> None:
        while True:
            self._on.wait()
            if self._over:
                return
            self.rows += sum(len(sample.rows) for sample in self._collector.read())
            time.sleep(COLLECT_EVERY_S)

    def during(self, work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
        self._on.set()
        try:
            return work()
        finally:
            self._on.clear()

    def end(self) -> None:
        self._over = True
        self._on.set()
        self._thread.join()
        self._collector.close()


def pair(requests: int, *, probed_first: bool) -> tuple[float, float]:
    """Logarithms of the ratio watched to unwatched, of wall and CPU time."""
    worker = Worker()
    watching = Watching(worker.pid)
    spent = {True: [0.0, 0.0], False: [0.0, 0.0]}
    try:
        for turn in range(2 * requests):
            probed = (turn % 4 in (0, 3)) is probed_first
            if probed:
                took = watching.during(lambda: worker.run(probed=True))
            else:
                took = worker.run(probed=False)
            spent[probed] = [
                so_far + more for so_far, more in zip(spent[probed], took, strict=True)
            ]
        assert watching.rows, "nothing was collected"
    finally:
        watching.end()
        worker.end()
    wall, cpu = (math.log(spent[True][index] / spent[False][index]) for index in (0, 1))
    return wall, cpu


def effect(pairs: int, run_s: float) -> dict[str, float]:
    """Ratio of watched to unwatched time of the same work, with its 95 % interval."""
    trial = Worker()
    once_s = min(trial.run(probed=False)[0] for _ in range(5))
    trial.end()
    requests = max(2, 2 * round(run_s / once_s / 2))
    logs = [pair(requests, probed_first=bool(number % 2)) for number in range(pairs)]
    return {
        "pairs": pairs,
        "requests_a_run": requests,
        "spans_per_s": 2 / once_s,
        "first_in_line": trial.first_in_line,
        **_interval("wall", [wall for wall, _ in logs]),
        **_interval("cpu", [cpu for _, cpu in logs]),
    }


def _interval(name: str, logs: Sequence[float]) -> dict[str, float]:
    """Hodges-Lehmann estimate of the ratio and its 95 % interval (Wilcoxon's signed ranks).

    A pair that another program disturbed is one rank among many here, where it would carry a mean
    away with it.
    """
    count = len(logs)
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    outside = math.floor(
        count * (count + 1) / 4 - 1.96 * math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    )
    return {
        f"{name}_ratio": math.exp(statistics.median(means)),
        f"{name}_low": math.exp(means[outside]),
        f"{name}_high": math.exp(means[-1 - outside]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--run-s", type=float, default=0.4)
    parser.add_argument("--no-spans", action="store_true", help="measure the effect alone")
    parser.add_argument("--turns", type=int, default=300, help="short loops per figure")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for python in () if options.no_spans else INTERPRETERS:
        costs = found[f"python {python}"] = span_costs(python, options.turns)
        print(
            f"Python {python!s:4}  "
            f"a million additions {costs['million_additions_ns'] / 1e6:3.0f} ms  "
            f"span {costs['span_ns']:5.0f} ns, among other work "
            f"{costs['span_among_work_ns']:5.0f} ns  in a task {costs['span_in_task_ns']:5.0f} ns, "
            f"one of 50 {costs['span_in_one_of_50_tasks_ns']:5.0f} ns  "
            f"nested pair {costs['nested_pair_ns']:5.0f} ns  "
            f"decorator {costs['decorated_call_ns']:5.0f} ns  off (additions "
            f"{costs['disabled_million_additions_ns'] / 1e6:3.0f} ms) "
            f"{costs['disabled_span_ns']:4.0f} "
            f"ns, decorator {costs['disabled_decorated_call_ns']:3.0f} ns  import "
            f"{costs['import_ms']:.1f} ms",
            flush=True,
        )
    seen = found["effect"] = effect(max(options.pairs, 20), options.run_s)
    for name in ("wall", "cpu"):
        ratio, low, high = (seen[f"{name}_{what}"] for what in ("ratio", "low", "high"))
        print(
            f"effect on {name} time: ratio {ratio:.4f}, 95 % interval {low:.4f} to {high:.4f} "
            f"(half-width {(high - low) / 2:.2%}, {seen['pairs']} pairs of "
            f"{seen['requests_a_run']} requests, {seen['spans_per_s']:.0f} spans a second)"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
