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
import shutil
import signal
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING

from bottletop.demo import work
from bottletop.demo.device import Device
from bottletop.demo.disk import CannotStarve, DataFile, batch_bytes
from bottletop.demo.handshake import EXIT_CANNOT, READY
from bottletop.demo.torch_device import NoRealGpu, TorchDevice
from bottletop.probe import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Protocol

    class Forward(Protocol):
        """Something that runs forward passes."""

        def forward(self, seconds: float) -> None: ...


SEED = 20240229


def inline(device: Forward, turns: Iterator[None], options: argparse.Namespace) -> None:
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


def from_disk(device: Forward, turns: Iterator[None], options: argparse.Namespace) -> None:
    """Read each batch straight from the disk, then run it."""
    data = DataFile(options.workspace)
    try:
        data.measure(0.1)
        size = batch_bytes(data.measure(), read_s=0.7)
        for _ in turns:
            with stage("read"):
                data.read(size)
            device.forward(0.48)
    finally:
        data.close()


def on_request(device: Forward, turns: Iterator[None], options: argparse.Namespace) -> None:
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


def prefetching(device: Forward, turns: Iterator[None], options: argparse.Namespace) -> None:
    """Keep the device busy: a second thread prepares the next batches while one runs."""
    # Bytes with little to repeat, so that unpacking takes time; zlib lets the other thread run.
    plain = bytes(random.Random(SEED).choices(range(48), k=200_000)) * 20
    packed, size = zlib.compress(plain, 1), len(plain)
    del plain
    ready: queue.Queue[bytes] = queue.Queue(maxsize=3)
    end = threading.Event()

    def prepare() -> None:
        while not end.is_set():
            with stage("decode"):
                batch = zlib.decompress(packed, bufsize=size)
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


PROGRAMS: dict[str, Callable[[Forward, Iterator[None], argparse.Namespace], None]] = {
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
    parser.add_argument("--workspace", required=True, help="folder of this run; gone after it")
    parser.add_argument("--pass-s", type=float, default=0.25, help="length of a forward pass")
    parser.add_argument("--spin", action="store_true", help="poll while the device works")
    parser.add_argument("--share", default="", metavar="FILE", help="lock of a shared device")
    parser.add_argument("--torch", action="store_true", help="run on a real GPU")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    turns = turns_until(options.parent, time.monotonic() + options.seconds)
    try:
        device: Forward = TorchDevice() if options.torch else Device(options.spin, options.share)
        PROGRAMS[options.program](device, turns, options)
    except (CannotStarve, NoRealGpu) as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_CANNOT
    finally:
        if os.getppid() != options.parent:
            # Whoever started us was killed and could not tidy up.
            shutil.rmtree(options.workspace, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
