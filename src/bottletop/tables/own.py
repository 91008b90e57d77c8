"""Tables about bottletop itself: what it costs and how its sources fare."""

from __future__ import annotations

from bottletop.model import SourceState as _SourceState
from bottletop.model import Table, counter, enumeration, gauge, text


class Own(Table):
    """Our own cost, shown like any other. Key: "bottletop"."""

    name = "self"
    entity = "bottletop"

    cpu_ns = counter("ns", "CPU time of this process", quantum=1000)
    rss_bytes = gauge("B", "resident memory", quantum=4096)
    threads = gauge("", "threads")
    nvml_ns = counter("ns", "time spent inside driver calls", quantum=1000)
    nvml_calls = counter("", "driver calls made")
    nvml_p95_s = gauge("s", "95th percentile of a driver read over the last minute", quantum=0.0001)
    late_ticks = counter("", "ticks that began more than a quarter of a period late")
    engine_s = gauge("s", "time the rules took at the last tick", quantum=0.00001)
    sampler_ns = counter("ns", "CPU time of the stack sampler's own processes", quantum=1000)


class SourceHealth(Table):
    """How each source fares. Written by the runtime, never by the sources. Key: source name."""

    name = "source"
    entity = "source"

    state = enumeration(
        {state.value: state.label for state in _SourceState}, "health of the source"
    )
    reason = text("why it is not ok, and what would change that")
    took_s = gauge("s", "duration of the last read", quantum=0.0001)
    reads = counter("", "reads that ended")
    failures = counter("", "reads that failed")
    late = counter("", "reads that missed their deadline")
