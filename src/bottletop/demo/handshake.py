"""What a program of the demo tells whoever started it."""

READY = "ready"
"""Printed, alone on a line, once a program runs steadily."""
EXIT_CANNOT = 3
"""Exit code of a program that cannot do its part here; its last line says why."""
