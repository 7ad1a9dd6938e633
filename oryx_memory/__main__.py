"""`python -m oryx_memory`: the same as `oryx-memory`."""

from oryx_memory.cli.main import oryx_memory

oryx_memory()
