"""The engine behind PgBouncer in transaction mode, where each transaction may have another connection."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.config import load_config, set_value
from hermes_core.curated.store import Notes
from hermes_core.errors import DatabaseUnavailable
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_agent.locks import SessionLock
from hermes_memory_postgresql.doctor import examine_server
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.postgres import PostgresDatabase
from hermes_memory_postgresql.schema import MIGRATIONS
from hermes_memory_testing.fakes import RecordingProvider
from tests.manager.conftest import until
from tests.postgres_server import PostgresServer

PROGRAM = shutil.which("pgbouncer")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(PROGRAM is None, reason="the program pgbouncer is not installed"),
]


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a server and that of a pooler before it."""
    folder = tmp_path / "pgbouncer"
    folder.mkdir(mode=0o755)
    for part in [folder, *folder.parents][:3]:
        part.chmod(0o755)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with contextlib.closing(PostgresServer()) as server:
        (folder / "pgbouncer.ini").write_text(f"""
[databases]
* = host=127.0.0.1 port={server.port} user=hermes
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
""")
        assert PROGRAM is not None
        pooler = subprocess.Popen(
            [PROGRAM, "-u", "nobody", str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL
        )
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield server.url, f"postgresql://hermes@127.0.0.1:{port}/postgres"
        finally:
            pooler.kill()
            pooler.wait()


def test_a_role_without_its_schema_is_told_what_to_run(pooled: tuple[str, str]) -> None:
    with (
        contextlib.closing(
            PostgresDatabase(pooled[1], MIGRATIONS, schema="hermes", prepare="off")
        ) as database,
        pytest.raises(DatabaseUnavailable, match="ALTER ROLE hermes SET search_path = hermes"),
    ):
        database.execute("SELECT 1")


def test_many_programs_share_a_few_connections(pooled: tuple[str, str], tmp_path: Path) -> None:
    direct, url = pooled
    with contextlib.closing(psycopg.connect(direct, autocommit=True)) as admin:
        admin.execute("ALTER ROLE hermes SET search_path = hermes")
    stores = [SessionStore(PostgresEngine(url, prepare="off")) for _ in range(10)]

    def work(number: int) -> None:
        db = stores[number]
        db.create_session(f"s{number}")
        for turn in range(8):
            with db.transaction():
                message = {"role": "user", "content": f"kumquat {number} {turn}"}
                db.append_turn(f"s{number}", [message], f"t{number}-{turn}", turn + 1)
                Outbox(db.database).put("fake", NewRow("sync_turn", f"t{number}-{turn}", f"s{number}", "{}"))
            assert db.turns.count(f"s{number}") == turn + 1
            assert db.past.search(f"kumquat {number} {turn}", limit=3)
        notes = Notes(HermesHome(tmp_path / f"m{number}"), db.database, scan=lambda text: None)
        assert notes.add("memory", f"Grows kumquat {number}")["success"]
        claim = SessionLock(db.database)
        assert claim.move(f"s{number}")
        claim.release()

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(work, range(10)))
    assert stores[0].counts() == {"sessions": 10, "messages": 80}
    assert Outbox(stores[0].database).depth == 80
    notes = Notes(HermesHome(tmp_path / "m0"), stores[0].database)
    assert sorted(notes.entries("memory")) == [f"Grows kumquat {number}" for number in range(10)]
    for store in stores:
        store.close()
    with contextlib.closing(psycopg.connect(direct, autocommit=True)) as admin:
        row = admin.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
        assert row == (0,)


def test_doctor_knows_a_pooler_by_the_number_of_the_process(
    pooled: tuple[str, str], hermes_home: HermesHome
) -> None:
    direct, url = pooled
    with contextlib.closing(psycopg.connect(direct, autocommit=True)) as connection:
        connection.execute("ALTER ROLE hermes SET search_path = hermes")
    set_value(hermes_home, "storage.url", url)
    for prepare, poolers in (("auto", 1), ("off", 0)):
        set_value(hermes_home, "storage.prepare", prepare)
        findings = list(examine_server(hermes_home, load_config(hermes_home)))
        assert [finding.what for finding in findings].count("pooler") == poolers, findings
    set_value(hermes_home, "storage.url", direct)
    set_value(hermes_home, "storage.prepare", "auto")
    assert "pooler" not in {finding.what for finding in examine_server(hermes_home, load_config(hermes_home))}


def test_two_gateways_keep_their_people_apart(pooled: tuple[str, str], tmp_path: Path) -> None:
    direct, url = pooled
    with contextlib.closing(psycopg.connect(direct, autocommit=True)) as admin:
        admin.execute("ALTER ROLE hermes SET search_path = hermes")
    config = {"storage": {"url": url, "prepare": "off"}, "recall": {"sessions": "auto"}}
    providers = [RecordingProvider(), RecordingProvider()]
    gateways = [
        open_memory(tmp_path / f"home-{at}", provider=provider, config=config)
        for at, provider in enumerate(providers)
    ]

    def talk(person: int) -> None:
        for number in range(3):
            gateway = gateways[(person + number) % 2]  # a person comes back to another gateway
            chat = gateway.conversation("chat", user_id=f"p{person}", platform="telegram")
            turn = chat.turn(f"My kumquat of person {person}, {number}. Where is it?")
            said = [str(message["content"]) for message in turn.messages if message["role"] == "user"]
            assert len(said) == number + 1
            for text in (turn.recall.context, *said):
                assert f"person {person}," in text or "kumquat" not in text
            turn.finish(f"It is with person {person}, I note.")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(talk, range(12)))
    assert until(lambda: all(gateway.flush() for gateway in gateways))
    texts = [call["turn"].user for provider in providers for call in provider.of("sync_turn")]
    assert len(texts) == len(set(texts)) == 36
    for person in range(12):
        chat = gateways[0].conversation("search", user_id=f"p{person}", platform="telegram")
        recalled = chat.turn("Where is my kumquat?").recall.context
        owners = set(re.findall(r"person (\d+)", recalled))
        assert owners == {str(person)}
    for gateway in gateways:
        gateway.close()
