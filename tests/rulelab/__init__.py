"""Builds what sources would have read from short descriptions of a host, and judges it."""
