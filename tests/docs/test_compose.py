"""The setup for Compose on the page about the server: its references hold, and its script makes what doctor wants."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from hermes_core.config import load_config, parse_config, set_value
from hermes_core.home import HermesHome
from hermes_memory_postgresql.doctor import examine_server
from tests.postgres_server import PostgresServer, binaries

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "operate-postgresql.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

# Of the specification of Compose.
TOP_LEVEL = {"name", "services", "volumes", "configs", "networks", "secrets"}
SERVICE = {
    *("image", "build", "user", "restart", "shm_size", "stop_grace_period", "healthcheck", "environment"),
    *("depends_on", "command", "configs", "volumes", "hostname"),
}
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}

# What the image of PostgreSQL documents, and what its script, libpq and this package read.
VARIABLES = {
    *("POSTGRES_PASSWORD", "POSTGRES_INITDB_ARGS", "REPLICATION_PASSWORD", "PGPASSWORD"),
    *("HERMES_HOME", "HERMES_STORAGE", "HERMES_STORAGE_PASSWORD"),
}
POOLER_KEYS = {
    *("listen_addr", "listen_port", "auth_type", "auth_file", "pool_mode", "default_pool_size"),
    *("max_client_conn", "max_prepared_statements", "server_idle_timeout"),
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(BLOCKS[0])
    return loaded


def test_the_keys_are_those_of_compose(compose: dict[str, Any]) -> None:
    assert {key for key in compose if not key.startswith("x-")} <= TOP_LEVEL
    for name, service in compose["services"].items():
        assert service.keys() <= SERVICE, name
        assert ("image" in service) != ("build" in service)
        assert service.get("healthcheck", {}).keys() <= HEALTHCHECK
        assert service.get("environment", {}).keys() <= VARIABLES, name
        for other, condition in service.get("depends_on", {}).items():
            assert other in compose["services"]
            assert condition["condition"] in CONDITIONS
            needs_health = condition["condition"] == "service_healthy"
            assert not needs_health or "healthcheck" in compose["services"][other]
        for mount in service.get("volumes", ()):
            assert mount.partition(":")[0] in compose["volumes"]
        for config in service.get("configs", ()):
            assert config["source"] in compose["configs"]
            assert Path(config["target"]).is_absolute()


def test_each_container_has_a_disk_of_its_own(compose: dict[str, Any]) -> None:
    mounts = [mount for service in compose["services"].values() for mount in service.get("volumes", ())]
    assert len(mounts) == len(set(mounts)) == len(compose["volumes"])


def test_the_pooler_works_by_transactions(compose: dict[str, Any]) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(compose["configs"]["pgbouncer"]["content"])
    assert parser["pgbouncer"].keys() <= POOLER_KEYS
    assert parser["pgbouncer"]["pool_mode"] == "transaction"
    assert int(parser["pgbouncer"]["max_prepared_statements"]) > 0
    gateway = compose["services"]["gateway1"]["environment"]
    assert f"pgbouncer:{parser['pgbouncer']['listen_port']}/" in gateway["HERMES_STORAGE"]
    assert "host=db1" in parser["databases"]["hermes"]


def test_the_settings_of_the_home_are_sound() -> None:
    storage = parse_config(BLOCKS[1]).storage
    assert (storage.schema, storage.prepare) == ("hermes", "off")


@pytest.mark.skipif(os.name == "nt", reason="the images run a shell of POSIX")
def test_the_shell_reads_the_commands(compose: dict[str, Any]) -> None:
    command = compose["services"]["db2"]["command"]
    assert command[:2] == ["sh", "-c"]
    texts = [command[2], compose["configs"]["roles"]["content"]]
    for text in texts:
        subprocess.run(["sh", "-n"], input=text.replace("$$", "$"), text=True, check=True)


@pytest.mark.skipif(
    os.name == "nt" or shutil.which("sh") is None, reason="the script is for a shell of POSIX"
)
def test_the_script_makes_a_role_with_which_doctor_is_content(
    compose: dict[str, Any], hermes_home: HermesHome, tmp_path: Path
) -> None:
    with contextlib.closing(PostgresServer()) as server:
        with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as connection:
            connection.execute("CREATE ROLE postgres SUPERUSER LOGIN")
        by_postgres = server.url.replace("hermes@", "postgres@")
        with contextlib.closing(psycopg.connect(by_postgres, autocommit=True)) as connection:
            connection.execute("ALTER ROLE hermes RENAME TO administrator")
        environment = {
            "PATH": f"{binaries()}{os.pathsep}{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGDATA": str(tmp_path),
            "HERMES_STORAGE_PASSWORD": "swordfish",
            "REPLICATION_PASSWORD": "herring",
        }
        script = compose["configs"]["roles"]["content"].replace("$$", "$")
        done = subprocess.run(
            ["sh", "-e"], input=script, env=environment, text=True, capture_output=True, check=False
        )
        assert not done.returncode, done.stderr
        assert "replicator" in (tmp_path / "pg_hba.conf").read_text()
        set_value(hermes_home, "storage.url", f"postgresql://hermes@127.0.0.1:{server.port}/hermes")
        faults = [one for one in examine_server(hermes_home, load_config(hermes_home)) if one.state != "ok"]
        # The server of the tests has these off, for speed.
        assert {one.what for one in faults} == {"fsync", "full_page_writes", "vacuum"}, faults
        with contextlib.closing(psycopg.connect(by_postgres)) as connection:
            query = "SELECT rolsuper, rolreplication, starts_with(rolpassword, 'SCRAM') FROM pg_authid WHERE rolname = %s"
            assert connection.execute(query, ("hermes",)).fetchone() == (False, False, True)
            assert connection.execute(query, ("replicator",)).fetchone() == (False, True, True)
            slots = connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
            assert slots == [("db2",)]
