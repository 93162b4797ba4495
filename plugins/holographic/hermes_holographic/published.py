"""The data of Hermes Agent's own Holographic provider: its block of config.yaml and its facts. Only read, never
changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_core import Field
from hermes_core.kit import ConfigError, Database, Settings, epoch_time, load_settings
from hermes_core.kit.settings import read_value
from hermes_holographic.entities import in_parts

if TYPE_CHECKING:
    from hermes_holographic.store import FactStore

log = logging.getLogger(__name__)

BLOCK = "hermes-memory-store"
PART = 500
"""Facts that are copied in one transaction: about half a second."""

_CATEGORIES = frozenset({"user_pref", "project", "tool", "general"})

_FACTS = """SELECT fact_id, content, category, tags, trust_score, retrieval_count, helpful_count, created_at,
    updated_at FROM facts ORDER BY fact_id"""
_ENTITIES = "SELECT fact_id, name FROM fact_entities JOIN entities USING (entity_id) ORDER BY entity_id"


def read_settings(fields: Sequence[Field], home: Path, name: str) -> Settings:
    """Return the settings of `<name>.json`; a missing one may be under `plugins.hermes-memory-store` of config.yaml."""
    own = load_settings(fields, home, name)
    theirs = _block(home / "config.yaml")
    where = f"config.yaml under plugins.{BLOCK}"
    more = {
        field.name: read_value(field, theirs[field.name], where)
        for field in fields
        if theirs.get(field.name) not in (None, "") and own.source(field.name) == "default"
    }
    return load_settings(fields, home, name, overrides=more) if more else own


def own_file(path: Path) -> Path:
    """Return the file of our facts: `path`, or a file beside it if Hermes Agent's facts are there."""
    beside = path.with_name(f"{path.stem}.core{path.suffix}")
    return beside if beside.exists() or _is_theirs(path) else path


def take_over(store: FactStore, path: Path) -> None:
    """Copy the facts of Hermes Agent's file once, with trust, dates and entities.

    They are copied in parts, so that a process that ends early leaves less for the next.
    """
    whole = f"{BLOCK}:{path.name}"
    if store.applied(whole) or not _is_theirs(path):
        return
    with closing(Database(path, read_only=True)) as theirs:
        facts = [dict(row) for row in theirs.execute(_FACTS)]
        named: dict[int, list[str]] = {}
        for fact_id, name in theirs.execute(_ENTITIES):
            named.setdefault(fact_id, []).append(name)

    def copy(part: Sequence[dict[str, Any]]) -> None:
        for fact in part:
            _copy(store, fact, named.get(fact["fact_id"], []))

    for part in in_parts(facts, PART):
        store.apply_once(f"{whole}:{part[0]['fact_id']}", partial(copy, part))
    if store.apply_once(whole, lambda: None):
        log.info("took over %d facts of Hermes Agent from %s", len(facts), path)


def _copy(store: FactStore, fact: dict[str, Any], names: list[str]) -> None:
    content = str(fact["content"] or "").strip()
    if not content:
        return
    category = fact["category"] if fact["category"] in _CATEGORIES else "general"
    fact_id, new = store.add(content, category, str(fact["tags"] or ""), names, source="hermes-agent")
    if new:
        changed = _seconds(fact["updated_at"], store.clock())
        store.set_history(
            fact_id,
            trust=min(1.0, max(0.0, float(fact["trust_score"] or 0.0))),
            retrieval_count=int(fact["retrieval_count"] or 0),
            helpful_count=int(fact["helpful_count"] or 0),
            created_at=_seconds(fact["created_at"], changed),
            confirmed_at=changed,
        )


def _is_theirs(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    with closing(Database(path, read_only=True)) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return "memory_banks" in tables and "fact_vectors" not in tables


def _seconds(text: object, otherwise: float) -> float:
    """Return the seconds of a time: in UTC as SQLite's CURRENT_TIMESTAMP wrote it, or with a zone of its own."""
    return epoch_time(str(text)) or otherwise


def _block(path: Path) -> dict[str, Any]:
    import yaml

    # As the host reads the file: without libyaml PyYAML takes no tab before a comment.
    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Reads what another program marks with a tag of its own, such as Home Assistant's `!secret`, as nothing."""

    Loader.add_multi_constructor("!", lambda *_: None)
    try:
        data = yaml.load(path.read_text(encoding="utf-8-sig"), Loader)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, AttributeError, yaml.YAMLError) as exc:
        raise ConfigError(f"can't read {str(path)!r}: {exc}", "correct it") from exc
    plugins = data.get("plugins") if isinstance(data, dict) else None
    block = plugins.get(BLOCK) if isinstance(plugins, dict) else None
    return block if isinstance(block, dict) else {}
