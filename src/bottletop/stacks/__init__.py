"""Stacks of Python programs: read as the sampler prints them, told apart by stage."""
