"""Collectors: one file a source."""
