"""A home where Hermes Agent's own Holographic provider has worked: its settings and facts are read, its file is kept."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hermes_holographic.published import PART, take_over
from hermes_holographic.store import FactStore

from hermes_core.cli import main
from hermes_core.errors import ConfigError

THEIRS = """
CREATE TABLE facts (
    fact_id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL UNIQUE, category TEXT DEFAULT 'general',
    tags TEXT DEFAULT '', trust_score REAL DEFAULT 0.5, retrieval_count INTEGER DEFAULT 0,
    helpful_count INTEGER DEFAULT 0, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, hrr_vector BLOB);
CREATE TABLE entities (
    entity_id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, entity_type TEXT DEFAULT 'unknown',
    aliases TEXT DEFAULT '', created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE fact_entities (fact_id INTEGER, entity_id INTEGER, PRIMARY KEY (fact_id, entity_id));
CREATE VIRTUAL TABLE facts_fts USING fts5(content, tags, content=facts, content_rowid=fact_id);
CREATE TABLE memory_banks (
    bank_id INTEGER PRIMARY KEY AUTOINCREMENT, bank_name TEXT NOT NULL UNIQUE, vector BLOB NOT NULL,
    dim INTEGER NOT NULL, fact_count INTEGER DEFAULT 0, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
INSERT INTO facts (content, category, tags, trust_score, helpful_count, created_at, updated_at)
    VALUES ('Mel likes tea', 'user_pref', 'drink', 0.8, 6, '2026-01-02 03:04:05', '2026-02-03 04:05:06'),
           ('the climb is on Sunday', 'odd', NULL, 0.5, 0, NULL, 'yesterday');
INSERT INTO entities (name) VALUES ('The Climbers');
INSERT INTO fact_entities VALUES (2, 1);
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "memory_store.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(THEIRS)
    return path


def test_their_facts_are_ours_with_trust_dates_and_entities(theirs: Path, start: Callable[..., Any]) -> None:
    (tea,) = start().fact("probe", entity="Mel")["results"]
    assert (tea["category"], tea["tags"], tea["trust_score"], tea["helpful_count"]) == (
        "user_pref",
        "drink",
        0.8,
        6,
    )
    assert tea["reliability"] == round((4 * 0.5 + 6) / (4 + 6), 4)
    assert datetime.fromtimestamp(tea["created_at"], UTC).isoformat() == "2026-01-02T03:04:05+00:00"
    assert datetime.fromtimestamp(tea["confirmed_at"], UTC).isoformat() == "2026-02-03T04:05:06+00:00"
    assert start().texts("probe", entity="the climbers") == ["the climb is on Sunday"]


def test_their_file_stays_as_it_is(theirs: Path, start: Callable[..., Any]) -> None:
    before = theirs.read_bytes()
    start().add("Ann likes tea")
    assert theirs.read_bytes() == before
    assert theirs.with_name("memory_store.core.db").exists()


def test_a_fact_that_was_removed_does_not_come_back(theirs: Path, start: Callable[..., Any]) -> None:
    agent = start()
    (tea,) = agent.fact("probe", entity="Mel")["results"]
    agent.fact("remove", fact_id=tea["fact_id"])
    assert start().texts("list") == ["the climb is on Sunday"]


def test_a_copy_that_was_cut_short_goes_on_where_it_ended(theirs: Path, start: Callable[..., Any]) -> None:
    with closing(sqlite3.connect(theirs)) as db, db:
        db.executemany(
            "INSERT INTO facts (content) VALUES (?)", [(f"Comet {n} passed",) for n in range(PART)]
        )
    moments = iter([1.0] * 2 * (PART + 1))  # then the process ends
    store = FactStore(theirs.with_name("memory_store.core.db"), 128, 0.5, lambda: next(moments))
    with pytest.raises(StopIteration):
        take_over(store, theirs)
    assert store.count() == PART
    store.remove(store.find("Comet 1 passed") or 0)
    store.db.close()
    agent = start(hrr_dim=128)
    assert agent.provider.open(agent.home).store.count() == PART + 1  # all of theirs but the one


def test_ours_are_found_again_when_their_file_is_gone(theirs: Path, start: Callable[..., Any]) -> None:
    start().add("Ann likes tea")
    theirs.unlink()
    assert start().fact("list")["count"] == 3


def test_their_settings_hold_where_ours_say_nothing(tmp_path: Path, start: Callable[..., Any]) -> None:
    (tmp_path / "config.yaml").write_text(
        "plugins:\n  hermes-memory-store:\n    db_path: ${HERMES_HOME}/sub/facts.db\n    default_trust: '0.7'\n"
        "    auto_extract: 'false'\n    hrr_dim: 256\n    strange: 1\n"
    )
    agent = start(hrr_dim=512)
    fact_id = agent.add("Mel likes tea")
    store = agent.provider.open(tmp_path).store
    assert store.db.path == tmp_path / "sub" / "facts.db"
    assert store.get(fact_id)["trust_score"] == 0.7
    assert store.dim == 512


def test_a_tab_before_a_comment_is_read_as_the_host_reads_it(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    (tmp_path / "config.yaml").write_text("plugins:\n  hermes-memory-store:\n    hrr_dim: 256\t# mine\n")
    assert start().provider.open(tmp_path).store.dim == 256


def test_a_setting_that_they_left_empty_says_nothing(tmp_path: Path, start: Callable[..., Any]) -> None:
    block = "{db_path: '', auto_extract: '', default_trust: ''}"
    (tmp_path / "config.yaml").write_text(f"plugins: {{hermes-memory-store: {block}}}\n")
    assert start().provider.open(tmp_path).store.db.path == tmp_path / "memory_store.db"


def test_what_another_program_marks_with_a_tag_of_its_own_says_nothing(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    block = "{hrr_dim: 256, db_path: !secret path}"
    (tmp_path / "config.yaml").write_text(f"token: !secret ha\nplugins: {{hermes-memory-store: {block}}}\n")
    store = start().provider.open(tmp_path).store
    assert (store.dim, store.db.path) == (256, tmp_path / "memory_store.db")


def test_a_wrong_value_of_theirs_is_named_with_its_place(tmp_path: Path, start: Callable[..., Any]) -> None:
    (tmp_path / "config.yaml").write_text("plugins: {hermes-memory-store: {hrr_dim: many}}\n")
    with pytest.raises(ConfigError, match=r"hrr_dim.*plugins\.hermes-memory-store"):
        start()


def test_status_and_setup_show_what_they_say_and_a_no_is_kept(tmp_path: Path) -> None:
    def hermes(*words: str, typed: str = "") -> str:
        done = CliRunner().invoke(
            main, ["--home", str(tmp_path), *words], input=typed, prog_name="hermes-memory"
        )
        assert done.exit_code == 0, done.output
        return done.output

    (tmp_path / "config.yaml").write_text(
        "plugins: {hermes-memory-store: {auto_extract: true}}\nmemory: {provider: holographic}\n"
    )
    assert re.search(r"auto_extract +true +from file", hermes("memory", "status"))
    assert "auto_extract [Y/n]" in hermes(
        "memory", "setup", "holographic", "--no-check", typed="n\n" + "\n" * 9
    )
    assert re.search(r"auto_extract +false +from file", hermes("memory", "status"))
