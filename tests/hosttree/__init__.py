"""Host trees written by tests and the bench: /proc, /sys and cgroup files as Linux writes them."""

from hosttree.builder import HostTree, stat_line, target_of
from hosttree.reading import cells, context_for, of_table, only, read_table

__all__ = [
    "HostTree",
    "cells",
    "context_for",
    "of_table",
    "only",
    "read_table",
    "stat_line",
    "target_of",
]
