"""Makes the golden file of the present format: run once a format version, never over an old file.

    PYTHONPATH=src:tests python tests/session/golden/make.py tests/session/golden/vN.btrec

Beside it goes `vN.json`: what a reader must find in it, by metric id, for as long as there are
readers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from session.recording import recorder, ticks
from session.scripted import ScriptedHost

from bottletop.model import Absent
from bottletop.session.events import Arrived, Evaluated


def main() -> None:
    path = Path(sys.argv[1])
    host = ScriptedHost(gpus=2, cores=2, disks=1, processes=2, threads_each=2, stages=2)
    to = recorder(path, host)
    events = ticks(host, to, 66)
    to.mark(host.clock.monotonic_ns(), "user", "the end is near")
    to.close(10)
    assert not to.status().error
    samples = [event for event in events if isinstance(event, Arrived)]
    said = [event for event in events if isinstance(event, Evaluated)]
    facts = {
        "host": "gpu-7",
        "samples": len(samples),
        "rows": sum(len(one.sample.rows) for one in samples),
        "arrivals": [one.arrival for one in samples[::97]],
        "tables": sorted({one.sample.table.name for one in samples}),
        "values": [
            {
                "arrival": one.arrival,
                "key": row.key,
                "t_ns": row.t_ns,
                "metric": metric.id,
                "value": [value.state.value, value.reason, value.raw]
                if isinstance(value, Absent)
                else value,
            }
            for one in samples[:: len(samples) // 40]
            for row in one.sample.rows[:1]
            for metric, value in zip(one.sample.table.columns, row.values, strict=True)
        ],
        "judgements": len(said),
        "verdicts": [one.judgement.verdict.text for one in said[::10]],
        "findings": sorted({f.code for one in said for f in one.judgement.findings if f.active}),
    }
    path.with_suffix(".json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
