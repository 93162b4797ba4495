"""Three machines on one server lose nothing, while they, the server and its primary are killed and suspended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql.engine import PostgresEngine
from tests.chaos.conftest import Record
from tests.chaos.machines import LEASE_S, faults, lines_of
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]

NAMES = ("a", "b", "c")

# Rounds of faults in `make chaos`; the suite has one round of each fault.
ROUNDS = int(os.environ.get("CHAOS_KILLS", "0")) // 20

# Writes of all machines between two faults.
WRITES = 15

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.name == "nt", reason="kills processes by signals"),
]


class Cluster:
    """Three machines, a primary server and a synchronous standby."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kills = self.restarts = self.pauses = self.failovers = 0
        self._runs = 0
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        self.primary = PostgresServer()
        self.standby = PostgresServer(self.primary)
        self.primary.wait_for_standby()
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        self.url = f"postgresql://hermes@{hosts}/postgres?target_session_attrs=read-write"

    def start(self, name: str) -> None:
        self._runs += 1
        arguments = [self.folder / name, self.url, "hermes", self.folder, f"{name}{self._runs}"]
        command = [sys.executable, "-m", "tests.chaos.machines", *map(str, arguments)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._machines[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def let_write(self, count: int = WRITES) -> None:
        """Wait until the machines have written so much more."""
        aim = len(lines_of(self.folder / "acknowledged")) + count
        self._wait(lambda: len(lines_of(self.folder / "acknowledged")) >= aim)

    def kill(self, name: str) -> None:
        self._machines[name].kill()
        self._machines[name].wait()
        self.kills += 1
        self.start(name)

    def suspend(self, name: str) -> None:
        """Suspend a machine until another one has its leases, and let it go on."""
        self._machines[name].send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE_S)
        self._machines[name].send_signal(signal.SIGCONT)
        self.pauses += 1

    def restart(self) -> None:
        """Kill the primary, and start it again."""
        self.primary.stop("immediate")
        self.primary.start()
        self.restarts += 1

    def fail_over(self, *, standby_away: bool = False) -> None:
        """Kill the primary for good, and let the standby take its place.

        Args:
            standby_away: True to stop the standby for a while before. What the primary commits then is lost with it.
        """
        if standby_away:
            self.standby.stop()
            self._wait(lambda: "CommitUnconfirmed" in lines_of(self.folder / "refused"))
        self.primary.stop("immediate")
        if standby_away:
            self.standby.start()
        self.standby.promote()
        self.failovers += 1

    def replace_standby(self) -> None:
        """Make a new standby where the dead primary was."""
        port = self.primary.port
        self.primary.close()
        self.primary = self.standby
        self.standby = PostgresServer(self.primary, port)
        self.primary.wait_for_standby()

    def finish(self) -> None:
        """Let the machines deliver everything, and end."""
        (self.folder / "stop").touch()
        self._wait(lambda: all(machine.poll() is not None for machine in self._machines.values()))
        assert [machine.returncode for machine in self._machines.values()] == [0] * len(NAMES), self._log()

    def close(self) -> None:
        for machine in self._machines.values():
            machine.kill()
            machine.wait()
        self.standby.close()
        self.primary.close()

    def _wait(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + 240
        while not reached():
            assert time.monotonic() < until, self._log()
            time.sleep(0.02)

    def _log(self) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text()[-2000:] for name in NAMES)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(tmp_path)) as machines:
        for name in NAMES:
            machines.start(name)
        yield machines


def test_kills_pauses_and_a_failover_lose_nothing(cluster: Cluster, record: Record) -> None:
    cluster.let_write()
    cluster.kill("a")
    cluster.suspend("b")
    cluster.restart()
    cluster.let_write()
    cluster.kill("c")
    chance = random.Random(1)
    for number in range(ROUNDS):
        cluster.let_write()
        cluster.kill(chance.choice(NAMES))
        fault = chance.choice([cluster.restart, lambda: cluster.suspend(chance.choice(NAMES)), lambda: None])
        fault()
        if number % 10 == 9:
            cluster.fail_over(standby_away=number % 20 == 19)
            cluster.let_write()
            cluster.replace_standby()
    cluster.fail_over(standby_away=True)
    cluster.let_write()
    cluster.finish()
    database = PostgresEngine(cluster.url, schema="hermes")
    with contextlib.closing(SessionStore(database)) as db:
        result = faults(db, cluster.folder)
        assert db.check() == []
        for table in ("outbox_rows", "outbox_lines"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0  # noqa: S608
    assert (result["lost"], result["disordered"], result["gaps"]) == ([], [], [])
    figures = {name: len(value) if isinstance(value, list) else value for name, value in result.items()}
    counts = {name: getattr(cluster, name) for name in ("kills", "restarts", "pauses", "failovers")}
    record("3 machines on one server", **counts, **figures)
