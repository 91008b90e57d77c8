"""Stages of requests or steps, and how long their passes take."""

from __future__ import annotations

from bottletop.model import Table, counter, enumeration, gauge, text
from bottletop.tables.host import YES_NO

PROBE = "probe"
"""`source` of stages that the target's own probe counts: passes under way included. What a server's
metric page says comes when a request ends, and is of requests, not of threads."""

STACKS = "stack sampler"
"""`source` of stages that are estimated from stacks of the main thread."""

AT_REQUEST_END = ", at request end"
"""End of a server's `source` where its stages are counted only when the whole request has ended."""


class Stage(Table):
    """One row a named stage of a process a tick; counters are cumulative since its start.

    The rows of a process that has ended stay for as long as the store looks back, with their last
    totals, so that its part in a window is not lost.
    """

    name = "stage"
    entity = "pid@start/stage"

    stage = text("stage name")
    source = text("where the number comes from: probe, server metrics, stack sampler")
    pid = gauge("", "process id")
    calls = counter("", "completed passes")
    inclusive_ns = counter("ns", "time inside, nested stages included, completed passes")
    self_ns = counter("ns", "time inside without nested stages, completed passes")
    in_flight = gauge("", "passes under way now")
    in_flight_ns = gauge("ns", "age of the oldest pass under way", quantum=1000)
    longest_ns = gauge("ns", "longest completed pass")
    occupied_ns = counter(
        "ns",
        "passes under way, integrated over time up to now: unlike inclusive_ns it grows while a "
        "pass is under way, so that its rate is the occupancy at any moment",
    )
    gone = enumeration(YES_NO, "the process has ended, and these are its last totals")
    samples = counter("", "stack samples behind the times of a stage that the stack sampler names")


class StageTime(Table):
    """How many passes of a stage took how long since it was first seen; only what occurred.

    One row a stage and step of duration, over all processes of the target. The steps of the probe
    are half octaves; with the time in each step, a quantile is known to a few percent. The steps of
    a server are the buckets of its histogram, in which the time is not known.
    """

    name = "stage_time"
    entity = "root pid@start/stage#step"

    calls = counter("", "completed passes of such a duration")
    inclusive_ns = counter("ns", "time in them")
    from_ns = gauge("ns", "shortest duration of this step")
    to_ns = gauge("ns", "durations of this step are below this")
    source = text("where the number comes from; as in stage")
