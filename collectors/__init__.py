"""Collectors: one file a source. `COLLECTORS` lists them in the order in which they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.collectors.cgroup import CgroupCollector
from bottletop.collectors.core import CoreCollector
from bottletop.collectors.disk import DiskCollector
from bottletop.collectors.gpu import GpuCollector
from bottletop.collectors.gpu_event import GpuEventCollector
from bottletop.collectors.hot_thread import HotThreadCollector
from bottletop.collectors.memory import MemoryCollector
from bottletop.collectors.own import OwnCollector
from bottletop.collectors.process import ProcessCollector
from bottletop.collectors.psi import PsiCollector
from bottletop.collectors.server import ServerCollector
from bottletop.collectors.stack import StackCollector
from bottletop.collectors.stage import StageCollector
from bottletop.collectors.target import TargetCollector

if TYPE_CHECKING:
    from bottletop.collectors.base import CollectorFactory

COLLECTORS: tuple[CollectorFactory, ...] = (
    GpuCollector,
    GpuEventCollector,
    CoreCollector,
    DiskCollector,
    MemoryCollector,
    PsiCollector,
    CgroupCollector,
    ProcessCollector,
    HotThreadCollector,
    ServerCollector,
    StageCollector,
    StackCollector,
    TargetCollector,
    OwnCollector,
)
