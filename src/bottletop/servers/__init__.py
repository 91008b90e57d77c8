"""Metric pages of inference servers: what they are called, read, and turned into stages."""
