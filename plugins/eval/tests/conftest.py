"""The command line, as the tests of the core run it."""

from __future__ import annotations

from tests.cli.conftest import data, hermes

__all__ = ["data", "hermes"]
