"""Importing a package that reads the environment while it is imported, without leaving a trace in the environment."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

_turn = threading.Lock()


def import_with(module: str, variables: Mapping[str, str]) -> ModuleType:
    """`module`, imported while these environment variables have these values; then they are as before.

    For SDKs that can be told in no other way to keep their telemetry to themselves or their files in a folder. What is
    imported already is given as it is. The environment belongs to the whole process: a program that another thread
    starts meanwhile inherits the variables.
    """
    found = sys.modules.get(module)
    if found is not None:
        return found
    with _turn, _environment(variables):
        return importlib.import_module(module)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
