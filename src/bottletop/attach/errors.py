"""Why a process cannot be attached to. Each message is one line for a person at a terminal."""

from __future__ import annotations


class NotAttachable(Exception):
    """The process cannot be watched. The message is one line and names what would change that."""


class NoSuchProcess(NotAttachable):
    """There is no such process, it has ended, or its pid now belongs to another one."""


class NotPermitted(NotAttachable):
    """The process is there but hidden from us; the message names the command that unlocks it."""
