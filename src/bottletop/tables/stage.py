"""Stages of requests or steps. Key: "pid@start/stage"."""

from __future__ import annotations

from bottletop.model import Table, counter, gauge, text


class Stage(Table):
    """One row a named stage of a process a tick; counters are cumulative since its start."""

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
