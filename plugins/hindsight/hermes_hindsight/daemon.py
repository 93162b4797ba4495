"""The server of the mode that runs one here: `hindsight-embed`, started and stopped by its own program.

That program keeps its port, lock, log, settings and database in ~/.hindsight and ~/.pg0, and finds a server that somebody
else started. We ask it and touch none of its files.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from hermes_core import Availability, HermesHome
from hermes_core.kit import BackendUnavailable, Settings
from hermes_core.kit.process import Service, child_environment, find_program, run
from hermes_hindsight.settings import CLOUD, OWN_SERVER, embedded

PROGRAM = "hindsight-embed"
STATUS_TIME = 10.0
"""Seconds that the program may take to say whether its server runs, unless a start has more."""

STOP_TIME = 13.0
PAUSE = 0.2

_START_AND_STOP = (
    "import subprocess, sys; [subprocess.run([*sys.argv[1:], what]) for what in ('start', 'stop')]"
)
"""A second start waits in line for the first, and ends when the server answers."""

_URL = re.compile(r"http://127\.0\.0\.1:\d+")


def program() -> str | None:
    """Return the path of hindsight-embed: on the PATH, or beside our Python."""
    return find_program(PROGRAM) or find_program(str(Path(sys.executable).with_name(PROGRAM)))


class Daemon:
    """The server of one hindsight-embed profile. `settings` are environment variables for it."""

    def __init__(self, profile: str, settings: Mapping[str, str], log: Path) -> None:
        self._command = [program() or PROGRAM, "-p", profile, "daemon"]
        self._env = child_environment({"COLUMNS": "200", **settings}, also=("HINDSIGHT_*",))
        self._starter = Service([*self._command, "start"], log=log, env=self._env)
        self._stopper = Service(
            [sys.executable, "-c", _START_AND_STOP, *self._command], log=log, env=self._env
        )
        self.ours = False

    def start(self) -> None:
        """Begin to start it, unless that is under way. It returns at once; a start takes from seconds to minutes."""
        self.ours = True
        self._starter.start()

    async def ready(self, within: float) -> str:
        """Return the server's address once it answers, and start it if necessary.

        Raises `BackendUnavailable` after `within` seconds.
        """
        until = asyncio.get_running_loop().time() + within
        url = await self.address(max(within, STATUS_TIME))
        if url:
            return url
        self.start()
        while self._starter.running:
            if asyncio.get_running_loop().time() > until:
                raise BackendUnavailable(
                    f"hindsight-embed is still starting after {within:g} s", f"see {self._starter.log}"
                )
            await asyncio.sleep(PAUSE)
        url = await self.address(max(within, STATUS_TIME))
        if not url:
            raise BackendUnavailable(
                "hindsight-embed could not start its server", f"see {self._starter.log} and the log it names"
            )
        return url

    async def address(self, within: float = STATUS_TIME) -> str:
        """Return the server's present address, "" if it does not run."""
        told = await asyncio.to_thread(run, [*self._command, "status"], timeout=within, env=self._env)
        found = _URL.search(told.out)
        return found[0] if found and told.code == 0 else ""

    async def stop(self) -> str:
        """Stop it, and its database with it; what went wrong, "" for nothing.

        It can't be stopped before it answers. Who stops one that is starting leaves that to a process that outlives us.
        """
        if self._starter.running:
            self._stopper.start()
            return ""
        told = await asyncio.to_thread(run, [*self._command, "stop"], timeout=STOP_TIME, env=self._env)
        return "" if told.code == 0 else (told.err.strip() or told.out.strip())


def availability(options: Settings) -> Availability:
    """Return whether the mode has what it needs here. Uses no network."""
    if not embedded(options):
        if options.mode == "cloud" and not options.api_key:
            remedy = "set HINDSIGHT_API_KEY in .env, or mode to local_external for a server of your own"
            return Availability.no("'api_key' is not set", remedy)
        return Availability()
    if program() is None:
        return Availability.no(
            "hindsight-embed is not installed", "hermes-memory memory setup hindsight installs it"
        )
    if getattr(os, "geteuid", lambda: 1)() == 0 and not options.database_url:
        remedy = "run as another user, or set HINDSIGHT_EMBED_API_DATABASE_URL"
        return Availability.no("root can't run the server's own Postgres", remedy)
    return Availability()


def usual_url(options: Settings) -> str:
    """Return the default address of a mode's server."""
    return CLOUD if options.mode == "cloud" else OWN_SERVER


def daemon_of(options: Settings, home: Path) -> Daemon:
    """Return the server that the settings describe; the profile of hindsight-embed decides the rest."""
    provider = "openai" if options.llm_provider == "openai_compatible" else options.llm_provider
    given = {
        "HINDSIGHT_API_LLM_PROVIDER": provider,
        "HINDSIGHT_API_LLM_MODEL": options.llm_model,
        "HINDSIGHT_API_LLM_BASE_URL": options.llm_base_url,
        "HINDSIGHT_API_LLM_API_KEY": options.llm_api_key,
        "HINDSIGHT_EMBED_API_DATABASE_URL": options.database_url,
    }
    settings = {name: str(value) for name, value in given.items() if value}
    return Daemon(options.profile, settings, HermesHome(home).logs / "hindsight-embed.log")
