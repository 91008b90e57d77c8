"""What recording costs: CPU a tick, bytes an hour, time to open and to seek, ticks lost to kill -9.

    python bench/record_bench.py [--ticks 600] [--kills 10] [--json FILE]

One sample here is one tick of a host with 8 GPUs, 64 cores, 8 disks and a target of 20 processes:
about 2100 values from a dozen sources. Budget: 1 ms of CPU a sample.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from session.scripted import ScriptedHost, judgement  # noqa: E402

from bottletop.clock import ManualClock, anchor  # noqa: E402
from bottletop.replay import Replay  # noqa: E402
from bottletop.session.reader import open_recording  # noqa: E402
from bottletop.session.writer import Recorder  # noqa: E402


def big_host() -> ScriptedHost:
    """The host that the budget is for."""
    return ScriptedHost(gpus=8, cores=64, disks=8, processes=20, threads_each=3, stages=8)


def record(path: Path, ticks: int) -> dict[str, float]:
    """Record pre-made ticks, each committed before the next, as at 1 Hz."""
    host = big_host()
    at = anchor(host.clock)
    made = []
    for _ in range(ticks):
        samples = [*host.samples(), *host.hot()]
        made.append((samples, judgement(host)))
    values = sum(len(row.values) for sample in made[-1][0] for row in sample.rows)
    recorder = Recorder(path, anchor=at, meta={}, thresholds={})
    recorder.flush()
    commits, arrival = [], 0
    cpu_s = time.process_time()
    for samples, said in made:
        for sample in samples:
            arrival += 1
            recorder.sample(arrival, sample)
        recorder.evaluated(arrival, said)
        began_s = time.perf_counter()
        assert recorder.flush()
        commits.append(time.perf_counter() - began_s)
    cpu_s = time.process_time() - cpu_s
    written = _written_bytes()
    began_s = time.perf_counter()
    recorder.close(10)
    close_s = time.perf_counter() - began_s
    assert not recorder.status().error, recorder.status().error
    commits.sort()
    return {
        "values_per_sample": values,
        "cpu_ms_per_sample": cpu_s / ticks * 1e3,
        "commit_p50_ms": commits[len(commits) // 2] * 1e3,
        "commit_p99_ms": commits[len(commits) * 99 // 100] * 1e3,
        "close_ms": close_s * 1e3,
        "mb_per_hour": path.stat().st_size / ticks * 3600 / 1e6,
        "bytes_per_value": path.stat().st_size / ticks / values,
        "disk_kb_per_sample": written / ticks / 1e3,
    }


def _written_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def read(path: Path) -> dict[str, float]:
    """Open, decode all, and land on random moments."""
    began_s = time.perf_counter()
    recording = open_recording(path)
    open_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    events = sum(1 for _ in recording.events())
    decode_s = time.perf_counter() - began_s
    replay = Replay(recording, ManualClock())
    random, far, near = Random(3), [], []
    for _ in range(20):
        moment_ns = random.randrange(recording.start_ns, recording.end_ns)
        began_s = time.perf_counter()
        replay.seek(moment_ns)
        far.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        replay.seek(moment_ns + 10**10)
        near.append(time.perf_counter() - began_s)
    far.sort()
    near.sort()
    return {
        "open_ms": open_s * 1e3,
        "events": events,
        "decode_s_per_hour": decode_s / ((recording.end_ns - recording.start_ns) / 3.6e12),
        "seek_p50_ms": far[10] * 1e3,
        "seek_p95_ms": far[18] * 1e3,
        "forward_10s_p95_ms": near[18] * 1e3,
    }


def killed(folder: Path, kills: int) -> dict[str, float]:
    """Kill a recorder at random moments; the most ticks that were handed over and not found."""
    random, lost = Random(5), []
    for number in range(kills):
        path = folder / f"killed-{number}.btrec"
        child = subprocess.Popen(
            [sys.executable, __file__, "--child", str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(random.randrange(5, 150)):
            last = int(child.stdout.readline())
        time.sleep(random.uniform(0, 0.02))
        os.kill(child.pid, signal.SIGKILL)
        last = max([last, *map(int, child.stdout.read().split("\n")[:-1])])
        child.wait()
        with open_recording(path) as recording:
            lost.append(last - len(recording.evaluation_times))
    return {"kills": kills, "kill9_max_lost": max(lost)}


def child(path: Path) -> None:
    """Record for ever at 50 ticks a second, saying which ticks were handed over."""
    host, arrival, tick = ScriptedHost(), 0, 0
    recorder = Recorder(path, anchor=anchor(host.clock), meta={}, thresholds={})
    recorder.flush()
    while True:
        for sample in host.samples():
            arrival += 1
            recorder.sample(arrival, sample)
        recorder.evaluated(arrival, judgement(host))
        tick += 1
        print(tick, flush=True)
        time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ticks", type=int, default=600)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "bench.btrec"
        figures = record(path, arguments.ticks)
        figures |= read(path)
        figures |= killed(Path(folder), arguments.kills)
    for name, value in figures.items():
        print(f"{name:22} {value:10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
