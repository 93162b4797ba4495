"""Source of a plugin: a folder, an archive, GitHub, another git server, or Hermes Agent's catalog.

Nothing here uses the network but `fetch` of a source that is not on this machine, and a look into the catalog.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from hermes_core.errors import BackendNotFound, ProviderError, SetupFailed
from hermes_core.home import expanded
from hermes_core.kit import redact
from hermes_core.kit.http import Api
from hermes_core.loader.discover import BUNDLED
from hermes_core.storage.files import PRIVATE_FOLDER
from hermes_memory_foreign.archives import ARCHIVE_SUFFIXES, copy_folder, unpack_archive
from hermes_memory_foreign.inspection import plugin_candidate
from hermes_memory_foreign.manifest import declared_words, refusal_of

CATALOG = "HERMES_PLUGIN_CATALOG"
"""Environment variable: address or folder of the catalog of plugins, in place of Hermes Agent's own."""

HOST = "HERMES_PLUGIN_HOST"
"""Environment variable: address that `OWNER/REPO` is below, in place of https://github.com."""

CATALOG_URL = "https://raw.githubusercontent.com/NousResearch/hermes-agent/main/plugin-catalog"
HOST_URL = "https://github.com"

DOWNLOAD_TIMEOUT_S = 120.0
CATALOG_TIMEOUT_S = 15.0

NAME = re.compile(r"[a-z0-9_-]{1,64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORTHAND = re.compile(
    r"(?P<owner>[\w.-]+)/(?P<repo>[\w.-]+?)(?:\.git)?(?:/(?P<subdir>[^@#]+))?(?:@(?P<ref>[\w./-]+))?"
)
_BROWSER_WORDS = frozenset({"blob", "commit", "tree"})
_GIT_SCHEMES = ("https://", "http://", "ssh://", "file://", "git://")


@dataclass(frozen=True, slots=True)
class PluginSource:
    """The place that a plugin is fetched from.

    Attributes:
        address: Path, URL, or OWNER/REPO.
        subdir: The folder of the plugin in it, "" for the top.
        ref: Commit, branch or tag, "" for the newest.
        pinned: True if the commit was chosen, so that an update does not move it.
        catalog: Its name in the catalog, "" if it is not from there.
        about: What the catalog says about it.
    """

    kind: Literal["folder", "archive", "github", "git", "catalog"]
    address: str
    subdir: str = ""
    ref: str = ""
    pinned: bool = False
    catalog: str = ""
    about: str = ""

    @property
    def recorded(self) -> str:
        """The source as Hermes Agent records it, without credentials."""
        address = f"{HOST_URL}/{self.address}.git" if self.kind == "github" else self.address
        return f"{redact(address)}#{self.subdir}" if self.subdir else redact(address)

    @property
    def is_local(self) -> bool:
        """True if fetching it needs no network."""
        return self.kind == "folder" or (self.kind == "archive" and "://" not in self.address)

    @property
    def default_name(self) -> str:
        """The name of the plugin if its plugin.yaml has none."""
        last = (self.subdir or self.address).rstrip("/").rpartition("/")[2]
        for suffix in (*ARCHIVE_SUFFIXES, ".git"):
            last = last.removesuffix(suffix)
        return last


def parse_source(text: str, ref: str = "") -> PluginSource:
    """Return the source that a person names. Raises `SetupFailed` for a text that is none."""
    path = expanded(text)
    # A bare name is the catalog's, unless a plugin of that name lies right here.
    lies_here = _is_plugin(path) or (path.is_file() and path.name.endswith((".whl", *ARCHIVE_SUFFIXES)))
    if text.startswith((".", "/", "~")) or lies_here:
        return _local(text, path)
    pinned = COMMIT.fullmatch(ref) is not None
    if text.startswith(_GIT_SCHEMES) or re.match(r"[\w.-]+@[\w.-]+:", text):
        source = _remote(text)
        return replace(source, ref=ref or source.ref, pinned=pinned)
    match = _SHORTHAND.fullmatch(text)
    if match:
        ref = ref or match["ref"] or ""
        subdir = (match["subdir"] or "").strip("/")
        pinned = COMMIT.fullmatch(ref) is not None
        return PluginSource("github", f"{match['owner']}/{match['repo']}", subdir, ref, pinned)
    if NAME.fullmatch(text):
        return PluginSource("catalog", text, ref=ref, pinned=True, catalog=text)
    raise SetupFailed(
        f"{text!r} is no plugin",
        "give OWNER/REPO, a name of the catalog, a folder, or an archive; "
        "'hermes-memory providers install' takes Python packages",
    )


def _local(text: str, path: Path) -> PluginSource:
    if not path.exists():
        raise SetupFailed(f"{text!r} is not there", "give the folder of a plugin, or an archive")
    address = str(path.absolute())
    if path.is_dir():
        return PluginSource("folder", address)
    if path.suffix == ".whl":
        raise SetupFailed(f"{text!r} is a Python package", f"run: hermes-memory providers install {text}")
    return PluginSource("archive", address)


def _remote(text: str) -> PluginSource:
    address, _, subdir = text.partition("#")
    parts = urlsplit(address)
    if parts.hostname in ("github.com", "www.github.com"):
        match parts.path.strip("/").split("/"):
            case [owner, repo]:
                return PluginSource("github", f"{owner}/{repo.removesuffix('.git')}", subdir)
            case [owner, repo, word, ref, *below] if word in _BROWSER_WORDS:
                return PluginSource("github", f"{owner}/{repo}", subdir or "/".join(below), ref)
    if parts.path.endswith(ARCHIVE_SUFFIXES):
        return PluginSource("archive", address, subdir)
    return PluginSource("git", address, subdir)


def fetch(source: PluginSource, folder: Path) -> tuple[Path, str]:
    """Fetch a source into the empty `folder`. Return the folder of the plugin in it, and the commit, "" if unknown.

    Raises `SetupFailed` if it can't be fetched or unpacked, or is not the commit that was chosen.
    """
    tree = folder / "tree"
    tree.mkdir(PRIVATE_FOLDER)
    commit = ""
    if source.kind == "folder":
        if folder.resolve().is_relative_to(Path(source.address).resolve()):
            raise SetupFailed(
                f"{source.address!r} holds the home itself", "give the folder of the plugin alone"
            )
        copy_folder(Path(source.address), tree)
    else:
        archive = _archive_of(source, folder)
        commit = unpack_archive(archive, tree, redact(source.address))
        commit = commit if COMMIT.fullmatch(commit) else ""
        if COMMIT.fullmatch(source.ref) and commit != source.ref:
            raise SetupFailed(
                f"{source.address!r} sent {commit or 'an archive that names no commit'}, not the commit {source.ref}",
                "nothing was installed; try again, and tell its author if it stays so",
            )
    return _plugin_in(tree, source), commit


def _archive_of(source: PluginSource, folder: Path) -> Path:
    """Return the archive of a source, downloaded if it is not on this machine."""
    if source.is_local:
        return Path(source.address)
    target = folder / "archive"
    if source.kind == "git":
        _clone(source, folder / "clone", target)
        return target
    address = source.address
    if source.kind == "github":
        host = os.environ.get(HOST) or HOST_URL
        address = f"{host.rstrip('/')}/{source.address}/archive/{source.ref or 'HEAD'}.tar.gz"
    target.write_bytes(_download(address, DOWNLOAD_TIMEOUT_S))
    return target


def _download(address: str, timeout: float) -> bytes:
    """Return the file at an address. Raises `SetupFailed`; `BackendNotFound` passes as its cause."""
    base, _, last = address.rpartition("/")
    try:
        with Api(base, name="the plugin's server", timeout=timeout) as api:
            return api.download(last).content
    except ProviderError as exc:
        raise SetupFailed(f"can't download {redact(address)!r}: {exc.message}", exc.remedy) from exc


def _clone(source: PluginSource, clone: Path, target: Path) -> None:
    """Write the archive of a commit of any git server, without running hooks or asking on the terminal."""
    git = shutil.which("git")
    if git is None:
        raise SetupFailed(
            f"{source.address!r} needs git, which is not installed", "install git, or give an archive"
        )
    safe = ["-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"]
    steps = [
        [git, *safe, "init", "--quiet", "--bare", str(clone)],
        [
            git,
            *safe,
            "-C",
            str(clone),
            "fetch",
            "--quiet",
            "--depth=1",
            "--",
            source.address,
            source.ref or "HEAD",
        ],
        [git, *safe, "-C", str(clone), "archive", "--format=tar", f"--output={target}", "FETCH_HEAD"],
    ]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}
    environment.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    for step in steps:
        try:
            done = subprocess.run(
                step,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=DOWNLOAD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise SetupFailed(
                f"git has not ended after {DOWNLOAD_TIMEOUT_S:g} s for {redact(source.address)!r}",
                "try again",
            ) from exc
        if done.returncode:
            words = redact(" ".join(done.stderr.split()))[-300:]
            raise SetupFailed(f"git can't fetch {redact(source.address)!r}: {words}", "check address and ref")


def _plugin_in(tree: Path, source: PluginSource) -> Path:
    """Return the folder of the plugin in what was fetched."""
    top = tree
    children = list(top.iterdir())
    # Archives of a repository have all in one folder.
    if source.kind != "folder" and len(children) == 1 and children[0].is_dir() and not _is_plugin(top):
        top = children[0]
    if source.subdir:
        chosen = top / source.subdir
        if ".." in Path(source.subdir).parts or not chosen.is_dir():
            raise SetupFailed(f"{source.address!r} has no folder {source.subdir!r}", "look at the repository")
        top = chosen
    if _is_plugin(top):
        return top
    within = _providers_in(top)
    if len(within) == 1:
        return within[0]
    if within:
        places = [path.relative_to(top).as_posix() for path in within]
        sign = "/" if source.kind == "github" else "#"
        raise SetupFailed(
            f"{source.address!r} holds {len(within)} providers: {', '.join(places[:8])}",
            f"name one: {source.address}{sign}{places[0]}",
        )
    is_package = (top / "pyproject.toml").exists()
    raise SetupFailed(
        f"{source.address!r} holds no folder with an __init__.py that registers a memory provider",
        "it may be a Python package: hermes-memory providers install" if is_package else "see its page",
    )


def _providers_in(top: Path) -> list[Path]:
    """Return the folders below `top` that may register a memory provider: those with a plugin.yaml, else any."""
    folders = [path.parent for path in sorted(top.rglob("__init__.py")) if plugin_candidate(path.parent)]
    named = [folder for folder in folders if (folder / "plugin.yaml").is_file()]
    # A package lies in the folder of the plugin that it is a part of.
    return named or [folder for folder in folders if not any(other in folder.parents for other in folders)]


def _is_plugin(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


# ------------------------------------------------------------------------------------------------------------- catalog


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog of plugins: entries with pinned commits, and plugins that its maintainers removed.

    Attributes:
        place: An address or folder with a file for each entry and `removed.yaml`, as Hermes Agent has it; or one file of
            YAML or JSON with all of it. Default: `HERMES_PLUGIN_CATALOG`, else Hermes Agent's own.
    """

    place: str = ""

    def entry(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a name, None if there is none. Raises `SetupFailed` if it can't be read."""
        whole = self._whole()
        if whole is None:
            text = _catalog_file(self._where, f"{name}.yaml")
            return None if text is None else _yaml_mapping(text, f"the catalog's entry {name!r}")
        return next((one for one in whole[0] if one.get("name") == name), None)

    def removed(self) -> list[dict[str, Any]]:
        """Return the removed plugins, each with `name` or `repo`, and `reason`. Raises `SetupFailed`."""
        whole = self._whole()
        if whole is not None:
            return whole[1]
        data = _yaml_mapping(_catalog_file(self._where, "removed.yaml") or "{}", "it")
        return _entries(data.get("removed"), "reason")

    @property
    def _where(self) -> str:
        return self.place or os.environ.get(CATALOG) or CATALOG_URL

    def _whole(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
        """Return the entries and the removed plugins of a catalog in one file, None for a folder or its address."""
        where = self._where
        if "://" not in where:
            path = expanded(where)
            if path.is_dir():
                return None
            if not path.is_file():
                raise SetupFailed(
                    f"the catalog {where!r} is not there", "give a file, a folder or an address"
                )
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        elif urlsplit(where).path.endswith((".yaml", ".yml", ".json")):
            text = _download(where, CATALOG_TIMEOUT_S).decode("utf-8-sig", "replace")
        else:
            return None
        data = _yaml(text, f"the catalog {where!r}")
        if isinstance(data, list) or (isinstance(data, dict) and "repo" in data):
            data = {"plugins": data if isinstance(data, list) else [data]}
        if not isinstance(data, dict):
            raise SetupFailed(f"the catalog {where!r} holds no entries", "give the file of a catalog")
        listed = next((data[key] for key in ("plugins", "entries", "catalog") if key in data), None)
        if listed is None:
            listed = {name: one for name, one in data.items() if isinstance(one, dict) and "repo" in one}
        entries = _entries(listed, "")
        marked = [{"reason": one["removed"], **one} for one in entries if one.get("removed")]
        return entries, [*_entries(data.get("removed"), "reason"), *marked]


def _entries(listed: Any, text_key: str) -> list[dict[str, Any]]:
    """Return a list of entries, or a mapping of names to entries, as a list of entries with their names.

    Args:
        text_key: Key of the text that stands in place of an entry, "" if none may.
    """
    if isinstance(listed, dict):
        pairs = [(name, one) for name, one in listed.items()]
    else:
        pairs = [("", one) for one in listed] if isinstance(listed, list) else []
    entries = []
    for name, one in pairs:
        if isinstance(one, dict):
            entries.append({**({"name": name} if name else {}), **one})
        elif isinstance(one, str) and text_key:
            entries.append({"name": name, text_key: one} if name else {"name": one})
    return entries


def catalog_entry(source: PluginSource, catalog: Catalog) -> PluginSource:
    """Return the source that the catalog has under a name: a repository at one commit, which a person reviewed.

    Raises `SetupFailed` if the catalog has no such name, or its entry is not sound or is for another host.
    """
    name = source.catalog
    data = catalog.entry(name)
    if data is None:
        refuse_removed(source, catalog)
        raise SetupFailed(
            f"the catalog has no plugin {name!r}",
            f"run: hermes-memory memory setup {name}"
            if name in BUNDLED
            else f"give OWNER/REPO or a folder; for a Python package: hermes-memory providers install {name}",
        )
    repo = str(data.get("repo") or "")
    commit = str(data.get("sha") or data.get("commit") or "").strip().lower()
    if not repo.startswith("https://") or not COMMIT.fullmatch(commit) or data.get("name") != name:
        raise SetupFailed(
            f"the catalog's entry {name!r} names no https:// repository and whole commit",
            "tell its maintainers",
        )
    if refused := refusal_of(data):
        raise SetupFailed(f"the catalog says that {name!r} {refused}", "choose another one, or use it there")
    place = _remote(repo)
    subdir = str(data.get("subdir") or "").strip("/") or place.subdir
    chosen = source.ref or commit
    about = f"{name} of {data.get('maintainer') or 'an unknown maintainer'}, commit {chosen[:12]}"
    if declared := declared_words(data):
        about = f"{about}; it declares {declared}"
    return replace(place, subdir=subdir, ref=chosen, pinned=True, catalog=name, about=about)


def refuse_removed(source: PluginSource, catalog: Catalog) -> str:
    """Raise `SetupFailed` for a plugin that the catalog's maintainers removed.

    Return a sentence if their list can't be read, else "".
    """
    if source.is_local:
        return ""
    try:
        removed = catalog.removed()
    except SetupFailed as exc:
        return f"the catalog's list of removed plugins is not known: {exc.message}"
    if reason := _removed_reason(source, removed):
        raise SetupFailed(
            f"{source.catalog or source.address!r} was removed from the catalog: {reason}",
            "do not use it; plugins install --allow-removed takes it all the same",
        )
    return ""


def _removed_reason(source: PluginSource, removed: list[dict[str, Any]]) -> str:
    repo = _normal_repo(source.recorded.partition("#")[0])
    for one in removed:
        same_repo = one.get("repo") and _normal_repo(str(one["repo"])) == repo
        if same_repo or (source.catalog and one.get("name") == source.catalog):
            reason = one.get("reason")
            return reason if isinstance(reason, str) and reason else "no reason is given"
    return ""


def _normal_repo(address: str) -> str:
    return address.strip().rstrip("/").removesuffix(".git").lower()


def _catalog_file(place: str, name: str) -> str | None:
    """Return the text of a file of a catalog, None if it has no such file."""
    if "://" not in place:
        path = expanded(place) / name
        return path.read_text(encoding="utf-8-sig") if path.is_file() else None
    try:
        return _download(f"{place.rstrip('/')}/{name}", CATALOG_TIMEOUT_S).decode("utf-8-sig", "replace")
    except SetupFailed as exc:
        if isinstance(exc.__cause__, BackendNotFound):
            return None
        raise


def _yaml_mapping(text: str, label: str) -> dict[str, Any]:
    data = _yaml(text, label)
    if not isinstance(data, dict):
        raise SetupFailed(f"{label} is no mapping", "try again later")
    return data


def _yaml(text: str, label: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise SetupFailed(f"{label} can't be read: {' '.join(str(exc).split())}", "try again later") from exc
