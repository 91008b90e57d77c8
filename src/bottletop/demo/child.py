"""Programs that the demo watches: real processes with real work, and the probe's stages around it.

    python -m bottletop.demo.child PROGRAM [options]

Each runs until it is told to end, its time is up, or the process that started it is gone. It prints
`ready` once it runs steadily; where it cannot do its part here it says why and exits with 3.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import random
import signal
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING

from bottletop.demo import work
from bottletop.demo.device import Device
from bottletop.demo.disk import CannotStarve, DataFile, batch_bytes
from bottletop.probe import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

READY = "ready"
EXIT_CANNOT = 3
SEED = 20240229


def inline(device: Device, turns: Iterator[None], options: argparse.Namespace) -> None:
    """Preprocess a batch on one core, then run it: while one works, the other waits."""
    del options
    requests = work.make_requests(16, SEED)
    vocabulary = work.make_vocabulary()
    count = max(1, round(0.65 / work.cpu_s_per_request(requests)))
    for _ in turns:
        batch = [requests[number % len(requests)] for number in range(count)]
        with stage("decode"):
            decoded = [work.decode(request) for request in batch]
        with stage("resize"):
            tensors = [work.resize(picture) for picture, _ in decoded]
        with stage("tokenise"):
            tokens = [work.tokenise(text, vocabulary) for _, text in decoded]
        device.forward(0.5)
        del tensors, tokens


def from_disk(device: Device, turns: Iterator[None], options: argparse.Namespace) -> None:
    """Read each batch straight from the disk, then run it."""
    data = DataFile(options.folder)
    try:
        data.measure(0.1)
        size = batch_bytes(data.measure(), read_s=0.65)
        for _ in turns:
            with stage("read"):
                data.read(size)
            device.forward(0.45)
    finally:
        data.close()


def on_request(device: Device, turns: Iterator[None], options: argparse.Namespace) -> None:
    """Serve requests that come at random moments; between them there is nothing to do."""
    del options
    rng = random.Random(SEED)
    requests = work.make_requests(4, SEED)
    vocabulary = work.make_vocabulary()
    arrives = time.monotonic()
    for number, _ in enumerate(turns):
        arrives += rng.expovariate(1 / 1.6)
        time.sleep(max(0.0, arrives - time.monotonic()))
        with stage("decode"):
            _, text = work.decode(requests[number % len(requests)])
        with stage("tokenise"):
            work.tokenise(text, vocabulary)
        device.forward(rng.uniform(0.3, 0.5))
        with stage("reply"):
            zlib.crc32(text.encode())


def prefetching(device: Device, turns: Iterator[None], options: argparse.Namespace) -> None:
    """Keep the device busy: a second thread prepares the next batches while one runs."""
    # Incompressible enough that unpacking takes time; zlib lets the other thread run meanwhile.
    packed = zlib.compress(random.Random(SEED).randbytes(3 * 1024**2), 1)
    ready: queue.Queue[bytes] = queue.Queue(maxsize=3)
    end = threading.Event()

    def prepare() -> None:
        while not end.is_set():
            with stage("decode"):
                batch = zlib.decompress(packed)
            while not end.is_set():
                with contextlib.suppress(queue.Full):
                    ready.put(batch, timeout=0.5)
                    break

    loader = threading.Thread(target=prepare, name="loader", daemon=True)
    loader.start()
    try:
        for _ in turns:
            with stage("next-batch"):
                ready.get()
            device.forward(options.pass_s)
    finally:
        end.set()
        loader.join(2.0)


PROGRAMS: dict[str, Callable[[Device, Iterator[None], argparse.Namespace], None]] = {
    "inline": inline,
    "from-disk": from_disk,
    "on-request": on_request,
    "prefetching": prefetching,
}


def turns_until(parent: int, end_s: float) -> Iterator[None]:
    """Yield until the time is up or `parent` is no longer our parent."""
    print(READY, flush=True)
    while time.monotonic() < end_s and os.getppid() == parent:
        yield None


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise SystemExit(0)


def main(arguments: list[str] | None = None) -> int:
    """Run one program and return its exit code."""
    parser = argparse.ArgumentParser(prog="bottletop.demo.child", description=__doc__)
    parser.add_argument("program", choices=sorted(PROGRAMS))
    parser.add_argument("--parent", type=int, default=os.getppid(), help="ends when it is gone")
    parser.add_argument("--seconds", type=float, default=3600.0, help="ends after this time")
    parser.add_argument("--folder", default=".", help="where a data file may be written")
    parser.add_argument("--pass-s", type=float, default=0.25, help="length of a forward pass")
    parser.add_argument("--spin", action="store_true", help="poll while the device works")
    parser.add_argument("--share", default="", metavar="FILE", help="lock of a shared device")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    device = Device(spin=options.spin, shared_lock=options.share)
    turns = turns_until(options.parent, time.monotonic() + options.seconds)
    try:
        PROGRAMS[options.program](device, turns, options)
    except CannotStarve as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_CANNOT
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
