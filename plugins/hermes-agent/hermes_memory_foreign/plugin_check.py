"""First load of a plugin folder, in a process of its own: `python -m hermes_memory_foreign.plugin_check`.

The plugin's code may print, hang, end the process or change the modules of the host. The process that installs reads
the result from a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import structs

from hermes_core import HermesHome
from hermes_core.contract.values import Availability
from hermes_core.errors import (
    ProviderError,
    ProviderInvalid,
    ProviderUnavailable,
    ProviderUnconfigured,
)
from hermes_core.home import FOLDER_PREFIX
from hermes_core.kit.process import kill_group
from hermes_core.loader.discover import name_owner
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.load import load_folder
from hermes_core.loader.requirements import missing_packages
from hermes_memory_foreign.inspection import plugin_candidate

# Twice the deadline of a load, which ends it first: the interpreter and this package start before it.
CHECK_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class FirstLoad:
    """The result of a first load: `unavailable` if the plugin is sound and lacks something, `failed` if it is not."""

    state: Literal["ok", "unavailable", "failed"]
    reason: str = ""
    remedy: str = ""


def check_plugin(folder: Path, name: str, home: HermesHome, answer: Path) -> FirstLoad:
    """Load a plugin folder in another process.

    Args:
        name: The name that the plugin will have.
        answer: File for the result, which must not exist yet.
    """
    command = [sys.executable, "-P", "-m", __spec__.name, str(home.path), str(folder), name, str(answer)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HERMES_HOME": str(home.path), "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    try:
        code = process.wait(CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return FirstLoad("failed", f"loading it has not ended after {CHECK_TIMEOUT_S:g} s", "ask its author")
    finally:
        _end(process)
    try:
        return FirstLoad(**json.loads(answer.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return FirstLoad("failed", f"loading it ended the process with code {code}", "ask its author")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, also if the installation was interrupted."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            kill_group(process)
    process.wait()


def _load(home: HermesHome, folder: Path, name: str) -> FirstLoad:
    place = plugin_candidate(folder)
    if place is None:
        return FirstLoad(
            "failed",
            "it registers no memory provider",
            "plugins of other sorts have no use here; install it in Hermes Agent",
        )
    chosen = f"{FOLDER_PREFIX}{name}" if name_owner(name) else name
    missing = missing_packages(place.requires)
    lacks = f"packages that it needs are not installed: {', '.join(missing)}"
    setup = f"run: hermes-memory memory setup {chosen}"
    try:
        provider = load_folder(structs.replace(place, name=chosen), home).factory()
    except ProviderError as exc:
        if missing and _may_come_from_a_missing_package(exc):
            return FirstLoad("unavailable", lacks, setup)
        # The settings of a plugin come after its installation, so it stays, as in Hermes Agent.
        if isinstance(exc, ProviderUnconfigured):
            return FirstLoad("unavailable", exc.message, exc.remedy)
        return FirstLoad("failed", exc.message, exc.remedy)
    if missing:
        return FirstLoad("unavailable", lacks, setup)
    answer = call_foreign(lambda: getattr(provider, "is_available", Availability)())
    if isinstance(answer, ForeignError):
        return FirstLoad("unavailable", f"is_available() raised {answer}", setup)
    if answer:
        return FirstLoad("ok")
    reason = answer.reason if isinstance(answer, Availability) else ""
    return FirstLoad("unavailable", reason or "it says that it can't run here", setup)


def _may_come_from_a_missing_package(error: ProviderError) -> bool:
    # A plugin that guards its imports registers nothing without them.
    return isinstance(error, ProviderUnavailable | ProviderInvalid) or any(
        word in error.message for word in ("ModuleNotFoundError", "ImportError")
    )


def main() -> None:
    """Load the folder that the arguments name, and write the result as JSON."""
    home, folder, name, answer = sys.argv[1:]
    result = _load(HermesHome(Path(home)), Path(folder), name)
    Path(answer).write_text(json.dumps(dataclasses.asdict(result)), encoding="utf-8")
    # Threads of the plugin must not hold the process.
    os._exit(0)


if __name__ == "__main__":
    main()
