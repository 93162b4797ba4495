"""The command line, as the tests of the core run it."""

from __future__ import annotations

from tests.cli.conftest import data, engine, hermes

__all__ = ["data", "engine", "hermes"]
