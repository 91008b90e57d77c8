"""Programs with the probe, under every CPython of this machine, read from outside."""

from probelab.interpreters import INTERPRETERS, OWN, Interpreter
from probelab.program import Program

__all__ = ["INTERPRETERS", "OWN", "Interpreter", "Program"]
