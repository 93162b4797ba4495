"""The suite under the file rules of Windows: on Linux by `HERMES_TEST_FILE_RULES=windows`, on Windows as it is.

A test with the marker `posix_files` does with files what Windows refuses. It is skipped with its reason.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.windows import sitecustomize


def pytest_configure() -> None:
    """Have the rules in this process and in the programs that tests start."""
    if os.name == "nt":
        return
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
    if not hasattr(sys.modules.get("sitecustomize"), "RULES"):  # a worker began with them
        sitecustomize.install()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need other rules."""
    for item in items:
        if marker := item.get_closest_marker("posix_files"):
            item.add_marker(pytest.mark.skip(reason=f"files of POSIX: {marker.args[0]}"))
