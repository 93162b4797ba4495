"""Plugin folders of a home: installed, updated and removed as a whole, or not at all.

A plugin is fetched and loaded once in a hidden folder beside the others, then renamed into its place. An interruption
leaves the old state: the hidden folder is cleared, and a plugin that was moved aside is put back, by the next command.
pip is never run: `hermes-memory memory setup NAME` installs the packages that a plugin needs, after a question.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import load_config
from hermes_core.errors import SetupFailed
from hermes_core.home import FOLDER_PREFIX, folder_fault
from hermes_core.kit import write_atomic
from hermes_core.loader.discover import BUNDLED, FOLDERS, discover, name_owner, read_manifest, select
from hermes_core.shell_words import shell_line
from hermes_core.storage.files import delete_path, ensure_folder, locked
from hermes_memory_foreign.plugin_check import FirstLoad, check_plugin
from hermes_memory_foreign.plugin_source import (
    Catalog,
    PluginSource,
    catalog_entry,
    fetch,
    parse_source,
    refuse_removed,
)

logger = logging.getLogger(__name__)

_STAGE = ".staged-"
# In a staged folder, the name and the record of the plugin that is moved into its place.
_INTENT = "record.json"

# Hermes Agent keeps the same record in a home that both share.
RECORD = ".install-metadata.json"

_PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

DEFAULT_CATALOG = Catalog()

# Another installation may be downloading.
LOCK_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin after its installation.

    Attributes:
        name: The name of its folder.
        selector: The value of `memory.provider` that chooses it.
        changed: False if an update brought nothing new.
    """

    name: str
    selector: str
    folder: Path
    revision: str
    load: FirstLoad
    changed: bool = True


def install_plugin(
    home: HermesHome,
    source: PluginSource,
    *,
    name: str = "",
    force: bool = False,
    catalog: Catalog = DEFAULT_CATALOG,
) -> InstalledPlugin:
    """Fetch a plugin, load it once in another process, and move it into `plugins/` of the home.

    Args:
        source: The place to fetch it from, with the catalog's entry already looked up.
        name: Its name here; default: the name in its plugin.yaml, else that of its folder or repository.
        force: Replace a plugin of that name.
        catalog: The catalog that an update looks into, if the plugin is from one.

    Raises:
        SetupFailed: It can't be fetched, or does not load. Nothing was changed.
    """
    if name:  # before anything is fetched
        _target(home, name)
    with _stage(home) as stage:
        fetched, revision = fetch(source, stage)
        manifest = read_manifest(fetched)
        own_name = source.default_name if _is_top(fetched, stage / "tree", source) else fetched.name
        name = name or str(manifest.get("name") or "") or own_name
        target = _target(home, name)
        if not force and os.path.lexists(target):
            raise SetupFailed(
                f"{str(target)!r} is there already",
                f"run: hermes-memory plugins update {name}, or add --force",
            )
        return _publish(home, stage, fetched, target, source, revision, catalog)


def _is_top(fetched: Path, tree: Path, source: PluginSource) -> bool:
    """Return True if a plugin is all of what was fetched, and not a folder with a name of its own in it.

    The only folder of an archive has the name of a commit, so its source names it.
    """
    wrapped = fetched.parent == tree and source.kind != "folder" and len(list(tree.iterdir())) == 1
    return fetched == tree or wrapped


def update_plugin(home: HermesHome, name: str) -> InstalledPlugin:
    """Fetch the newest version of an installed plugin, and replace it if that version loads.

    Files that the plugin wrote into its own folder are kept.

    Raises:
        SetupFailed: It has no recorded source, is pinned, or the new version does not load. The old one stays.
    """
    target, record = _target(home, name), plugin_records(home).get(name) or {}
    if not target.is_dir():
        raise SetupFailed(
            f"{name!r} is no plugin folder of {str(home.plugins)!r}", "see: hermes-memory plugins list"
        )
    if target.is_symlink():
        raise SetupFailed(
            f"{str(target)!r} is a link to {str(target.resolve())!r}", "update the plugin there"
        )
    if (target / ".git").exists():
        raise SetupFailed(
            f"{str(target)!r} is a clone of a repository", f"run: {shell_line(('git', '-C', target, 'pull'))}"
        )
    if not record.get("source"):
        raise SetupFailed(
            f"where {name!r} came from is not recorded", "run: hermes-memory plugins install SOURCE --force"
        )
    catalog = Catalog(str(record.get("catalog") or ""))
    if record.get("catalog_name"):
        source = catalog_entry(PluginSource("catalog", "", catalog=str(record["catalog_name"])), catalog)
    elif record.get("pinned"):
        raise SetupFailed(
            f"{name!r} is pinned to {record.get('revision')}",
            f"run: hermes-memory plugins install {record['source']} --ref COMMIT --force",
        )
    else:
        source = parse_source(str(record["source"]))
    if unknown := refuse_removed(source, catalog):
        logger.warning("updating %s: %s", name, unknown)
    if source.pinned and source.ref == record.get("revision"):
        return _unchanged(target, str(record["revision"]))
    with _stage(home) as stage:
        fetched, revision = fetch(source, stage)
        if revision and revision == record.get("revision"):
            return _unchanged(target, revision)
        _keep_own_files(target, fetched)
        return _publish(home, stage, fetched, target, source, revision, catalog)


def remove_plugin(home: HermesHome, name: str) -> Path:
    """Remove a plugin folder, or the link to it, and return its path.

    Raises:
        SetupFailed: There is no such folder, or the active provider is in it.
    """
    target = plugin_folder(home, name)
    for active in load_config(home).selected_providers:
        if all(place.path != target for place in select(discover(home), active)):
            continue
        raise SetupFailed(f"{active!r} is the active provider", "run 'hermes-memory memory off' first")
    with _stage(home) as stage:
        trash = stage / "trash"
        target.replace(trash)
        _record(home, target.name, None)
        _delete(trash)
    return target


def plugin_folder(home: HermesHome, name: str) -> Path:
    """Return the folder of an installed plugin. Raises `SetupFailed` if there is none."""
    name = name.removeprefix(FOLDER_PREFIX)
    if _PLUGIN_NAME.fullmatch(name):
        for path in (home.path / source / name for source in FOLDERS):
            if os.path.lexists(path) and path.relative_to(home.path).as_posix() not in FOLDERS:
                return path
    raise SetupFailed(f"no plugin folder is called {name!r}", "see: hermes-memory plugins list")


def plugin_records(home: HermesHome) -> dict[str, dict[str, Any]]:
    """Return the recorded source and revision of each installed plugin, by its name."""
    try:
        data = json.loads((home.plugins / RECORD).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise SetupFailed(
            f"can't read {str(home.plugins / RECORD)!r}: {exc}", "correct or delete the file"
        ) from exc
    found = data if isinstance(data, dict) else {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


# ------------------------------------------------------------------------------------------------------- one operation


@contextlib.contextmanager
def _stage(home: HermesHome) -> Iterator[Path]:
    """Hold the lock of the plugin folders, put right what an interruption left, and yield an empty hidden folder."""
    ensure_folder(home.plugins)
    with locked(home.plugins / ".install", LOCK_TIMEOUT_S):
        recover(home)
        stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=home.plugins))
        try:
            yield stage
        finally:
            recover(home)


def recover(home: HermesHome) -> None:
    """Put back what was moved aside and has no successor, complete a missing record, and delete hidden folders.

    The caller holds the lock.
    """
    for stage in home.plugins.glob(f"{_STAGE}*"):
        for old in (stage / "old").glob("*"):
            if not os.path.lexists(home.plugins / old.name):
                old.replace(home.plugins / old.name)
        _complete_record(home, stage)
        _delete(stage)


def _complete_record(home: HermesHome, stage: Path) -> None:
    """Record a plugin that is in its place, if the process died before it did so."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        record = json.loads((stage / _INTENT).read_text(encoding="utf-8"))
        name = record["name"]
        if (home.plugins / name).is_dir() and not (stage / "new" / name).exists():
            _record(home, name, record["entry"])


def _publish(
    home: HermesHome,
    stage: Path,
    fetched: Path,
    target: Path,
    source: PluginSource,
    revision: str,
    catalog: Catalog,
) -> InstalledPlugin:
    """Load the plugin once; then move it into its place and record it, or raise `SetupFailed`."""
    # The folder has its final name already, since a plugin may read it from __file__.
    staged = stage / "new" / target.name
    staged.parent.mkdir()
    fetched.replace(staged)
    load = check_plugin(staged, target.name, home, stage / "result.json")
    # The hidden folder is gone when a person reads this.
    reason, remedy = (text.replace(str(staged), str(target)) for text in (load.reason, load.remedy))
    load = FirstLoad(load.state, reason, remedy)
    if load.state == "failed":
        raise SetupFailed(f"{target.name!r} was not installed: {reason}", remedy)
    old = stage / "old" / target.name
    old.parent.mkdir()
    before = plugin_records(home).get(target.name)
    entry = {"pinned": source.pinned, "revision": revision or source.ref, "source": source.recorded}
    if source.catalog:
        entry["catalog_name"] = source.catalog
    if catalog.place:
        entry["catalog"] = catalog.place
    with contextlib.ExitStack() as undo:
        undo.callback(_take_back, home, stage, target, before)
        # Nothing makes the move and the record one step: a kill in between is completed from this file.
        write_atomic(stage / _INTENT, json.dumps({"name": target.name, "entry": entry}).encode())
        if os.path.lexists(target):
            target.replace(old)
        staged.replace(target)
        _record(home, target.name, entry)
        (stage / _INTENT).unlink()
        undo.pop_all()
    return InstalledPlugin(target.name, selector_of(target.name), target, revision, load)


def _take_back(home: HermesHome, stage: Path, target: Path, before: dict[str, Any] | None) -> None:
    """Delete a plugin that is in its place already. `recover` then puts back the one that was moved aside."""
    (stage / _INTENT).unlink(missing_ok=True)
    if not (stage / "new" / target.name).exists():
        _delete(target)
    _record(home, target.name, before)


def selector_of(name: str) -> str:
    """Return the value of `memory.provider` that chooses the plugin folder of this name."""
    return f"{FOLDER_PREFIX}{name}" if name.casefold() in BUNDLED else name


def _unchanged(target: Path, revision: str) -> InstalledPlugin:
    return InstalledPlugin(
        target.name, selector_of(target.name), target, revision, FirstLoad("ok"), changed=False
    )


def _target(home: HermesHome, name: str) -> Path:
    """Return the place of a plugin. Raises `SetupFailed` for a name that no plugin can have."""
    taken = name_owner(name) not in ("", *BUNDLED.values()) or f"{home.plugins.name}/{name}" in FOLDERS
    if taken or _PLUGIN_NAME.fullmatch(name) is None or folder_fault(name):
        raise SetupFailed(f"{name!r} can't be the name of a plugin", "choose another one with --name")
    return home.plugins / name


def _keep_own_files(old: Path, new: Path) -> None:
    """Copy files that are no code and not in the new version: data and settings that the plugin keeps in its folder."""
    for parent, names, files in os.walk(old):
        names[:] = [name for name in names if name not in (".git", "__pycache__")]
        for file in files:
            path = Path(parent, file)
            copy = new / path.relative_to(old)
            if (
                path.is_file()
                and not path.is_symlink()
                and path.suffix not in (".py", ".pyc")
                and not copy.exists()
            ):
                with contextlib.suppress(FileExistsError, NotADirectoryError):
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, copy)


def _record(home: HermesHome, name: str, entry: dict[str, Any] | None) -> None:
    """Write or remove the record of a plugin. Other records stay, also those that Hermes Agent wrote."""
    records = plugin_records(home)
    if entry is None and name not in records:
        return
    records.pop(name, None)
    if entry is not None:
        records[name] = entry
    write_atomic(home.plugins / RECORD, (json.dumps(records, indent=2, sort_keys=True) + "\n").encode())


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        delete_path(path)
