"""Records in a process of its own, to be killed or starved of space.

python -m session.child PATH [--limit BYTES] [--ticks N]

Prints the number of each tick after it was handed over. A tick is handed over only once the one
before it is committed, as at one a second.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path

from session.recording import recorder, tick
from session.scripted import ScriptedHost


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--ticks", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (arguments.limit, arguments.limit))
    host = ScriptedHost()
    to = recorder(arguments.path, host)
    arrival = 0
    for number in range(1, arguments.ticks + 1):
        arrival = tick(host, to, arrival)[-1].arrival
        print(number, flush=True)
        if not to.flush(30):
            break
    to.close(30)
    print(f"status: {to.status().error or 'fine'}", flush=True)


if __name__ == "__main__":
    main()
