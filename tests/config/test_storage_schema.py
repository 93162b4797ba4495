"""The default schema of a profile on a server that all profiles of a home are given."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hermes_core.config import STORAGE, load_config
from hermes_core.home import HermesHome

ENVIRON = {STORAGE: "postgresql://hermes@db/hermes"}


def schema_of(home: HermesHome) -> str:
    return load_config(home, ENVIRON).storage.schema


def test_profiles_with_one_server_have_a_schema_each(tmp_path: Path) -> None:
    names = ["", "work", "play", "a.b", "a-b", "a_b", "x" * 60]
    schemas = [schema_of(HermesHome.resolve(tmp_path, name)) for name in names]
    assert schemas[:3] == ["hermes", "hermes_work", "hermes_play"]
    assert len(set(schemas)) == len(names)
    assert all(len(schema) <= 63 for schema in schemas)


def test_a_profile_named_by_its_folder_is_the_same_home(tmp_path: Path) -> None:
    assert schema_of(HermesHome(tmp_path / "profiles" / "work")) == "hermes_work"


@pytest.mark.parametrize("name", ["", "work"])
def test_a_schema_in_config_yaml_is_used_as_it_is(tmp_path: Path, name: str) -> None:
    home = HermesHome.resolve(tmp_path, name)
    home.path.mkdir(parents=True, exist_ok=True)
    home.config_yaml.write_text("storage:\n  schema: ours\n")
    assert schema_of(home) == "ours"


@pytest.mark.parametrize(
    "names",
    [
        ("a-b", "a_b_{}"),
        ("Work", "work", "_ork_{}", "wOrk"),
        ("x" * 64, "x" * 63 + "y", "x" * 40, "x" * 41),
        ("größe", "gr__e", "grö_e", "部署", "__"),
        ("select", "user", "pg_catalog"),
    ],
)
def test_no_two_profiles_share_a_schema(tmp_path: Path, names: tuple[str, ...]) -> None:
    from hermes_memory_postgresql.postgres import PostgresDatabase

    ending = hashlib.sha256(names[0].encode()).hexdigest()[:8]
    schemas = [schema_of(HermesHome(tmp_path / "profiles" / name.format(ending))) for name in names]
    assert len({*schemas}) == len(names)
    for schema in schemas:
        PostgresDatabase("postgresql://db/hermes", schema=schema)  # a name that it takes
