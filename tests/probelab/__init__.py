"""Programs with the probe, under every CPython of this machine, read from outside."""

from probelab.interpreters import INTERPRETERS, OWN, Interpreter
from probelab.memory import WrittenMemory, written, written_here
from probelab.program import Program, identify

__all__ = [
    "INTERPRETERS",
    "OWN",
    "Interpreter",
    "Program",
    "WrittenMemory",
    "identify",
    "written",
    "written_here",
]
