"""The packages of this project and the places that have them.

None of them is registered on a public package index. Whoever registers one of the names first could run code on every
machine that asks an index for it. So they are installed from a file, a checkout, or an index that the person configured.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import importlib_metadata

from hermes_core.shell_words import shell_line, shell_word

CORE = "hermes-memory-core"


_NAME_OR_VERSION = re.compile(r"^(Name|Version):[ \t]*(.*\S)", re.MULTILINE)


def name_and_version(read_text: Callable[[str], str | None]) -> tuple[str, str]:
    """Return the name and the version of a distribution; the version is "" if its metadata lacks it.

    The properties of `Distribution` import the package `email` and parse all metadata, the README included, at each access.

    Args:
        read_text: `Distribution.read_text` of the distribution.

    Raises:
        LookupError: The metadata lacks the name.
    """
    text = read_text("METADATA") or read_text("PKG-INFO") or ""
    found = dict(reversed(_NAME_OR_VERSION.findall(text.partition("\n\n")[0])))
    return found["Name"], found.get("Version", "")


@cache
def program_version() -> str:
    """Return the version of this program, "" if it is not installed as a package."""
    with contextlib.suppress(importlib_metadata.PackageNotFoundError):
        return name_and_version(importlib_metadata.distribution(CORE).read_text)[1]
    return ""


_BELOW = {
    "config": "edit get list set unset",
    "extensions": "install",
    "identity": "add list remove",
    "keys": "list remove set",
    "memory": "add allow edit history off pin prune remove replace reset restore set setup show status undo use",
    "outbox": "delete list retry",
    "providers": "install uninstall",
    "sessions": "archive check delete list pin prune rebuild rename repair search show vacuum",
    "storage": "status",
    "turns": "list show",
}
_ALONE = "completion costs demo doctor forget install-alias logs recall review verify"

CORE_COMMANDS = frozenset(
    {
        *_ALONE.split(),
        *_BELOW,
        *(f"{word} {below}" for word, names in _BELOW.items() for below in names.split()),
    }
)
"""The commands of `hermes-memory` that no extension can replace."""


class KnownExtension(NamedTuple):
    """An extension of this project, known by name also where it is not installed.

    Attributes:
        distribution: The package that has it.
        about: One line on what it adds.
        commands: Its commands of `hermes-memory`, each with its summary.
        schemes: Its schemes of `storage.url`.
        keys: Its keys of config.yaml, which have no effect without it.
        needs: Other packages of this project without which it can't be installed.
    """

    distribution: str
    about: str
    commands: Mapping[str, str] = {}
    schemes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


KNOWN_EXTENSIONS: dict[str, KnownExtension] = {
    "agent": KnownExtension(
        "hermes-memory-agent",
        "an agent with tools, compression, review and skills, and a chat",
        {
            "chat": "Talk with a model that remembers.",
            "memory curate": (
                "Let the model propose a shorter version: duplicates merged, stale entries dropped, contradictions shown."
            ),
            "skills": "List, show, undo and restore skills that the agent wrote down.",
        },
    ),
    "archive": KnownExtension(
        "hermes-memory-archive",
        "backups, exports, and the move between providers",
        {
            "backup": "Copy the whole home into one archive, also while programs write.",
            "restore": "Put a home back as a backup has it.",
            "export": "Write everything that is remembered into one archive.",
            "migrate": "Copy all memories from one provider to another, and choose that one.",
            "memory export": "Write the notes as files into a folder, for Git or another home.",
            "memory import": "Make the notes what the files of a folder say.",
            "sessions export": "Write whole conversations as JSON Lines.",
            "sessions import": "Bring back sessions that `sessions export` wrote.",
        },
        keys=("backup.every",),
    ),
    "capture": KnownExtension(
        "hermes-memory-capture",
        "capture of the sessions of coding agents as they happen, and recall for them",
        {"capture": "Take the sessions of coding agents in as they happen, and give these agents recall."},
        needs=("hermes-memory-importers",),
    ),
    "eval": KnownExtension(
        "hermes-memory-eval",
        "the measurement of recall on your own sessions",
        {"eval": "Measure recall on your own past sessions; nothing is sent."},
    ),
    "hermes-agent": KnownExtension(
        "hermes-memory-hermes-agent",
        "providers written for Hermes Agent, plugin folders, and our providers inside Hermes Agent",
        {"plugins": "Install, update, remove and list plugin folders; hand a provider to Hermes Agent."},
    ),
    "http": KnownExtension(
        "hermes-memory-http",
        "the memory over HTTP, for programs in any language",
        {"serve": "Serve this memory over HTTP to programs in any language."},
    ),
    "importers": KnownExtension(
        "hermes-memory-importers",
        "import of conversations and memories of other tools",
        {"import": "Bring conversations or an export from a file into memory."},
    ),
    "mcp": KnownExtension(
        "hermes-memory-mcp", "a server for MCP clients", {"mcp": "Serve this memory to MCP clients."}
    ),
    "openclaw": KnownExtension(
        "hermes-memory-openclaw", "the move from OpenClaw", {"claw": "Move over from OpenClaw."}
    ),
    "postgresql": KnownExtension(
        "hermes-memory-postgresql",
        "sessions and notes on a PostgreSQL server",
        {
            "storage move": "Move sessions, outbox and notes to a server, or back.",
            "storage unmark": "Use a store that was moved, or is being moved.",
        },
        schemes=("postgresql", "postgres"),
    ),
    "rerank": KnownExtension(
        "hermes-memory-rerank",
        "order of what is recalled by a server with a reranking model",
        keys=("recall.rerank",),
    ),
    "semantic": KnownExtension("hermes-memory-semantic", "search of past sessions by meaning"),
    "telemetry": KnownExtension("hermes-memory-telemetry", "OpenTelemetry spans and metrics of memory"),
    "testing": KnownExtension(
        "hermes-memory-testing",
        "conformance tests for providers and hosts, and a template for a provider or an extension",
        {
            "providers new": "Make a package for a provider of your own.",
            "extensions new": "Make a package for an extension of your own.",
        },
    ),
    "ui": KnownExtension(
        "hermes-memory-ui",
        "a page that shows and changes memory in a browser",
        {"ui": "Show this memory in a browser, and change it there."},
    ),
}
"""All that the core knows of the extensions of this project. Their names are reserved."""

_PROVIDERS = "byterover hindsight holographic honcho mem0 openviking retaindb supermemory"
_INTEGRATIONS = "agent-framework google-adk langchain openai-agents pydantic-ai strands"

_FOLDERS = {
    CORE: "",
    **{f"hermes-memory-{name}": f"plugins/{name}" for name in (*KNOWN_EXTENSIONS, *_PROVIDERS.split())},
    **{f"hermes-memory-{name}": f"integrations/{name}" for name in _INTEGRATIONS.split()},
}
"""The packages of this project, each with its folder in the repository."""

OWN_PACKAGES = frozenset(_FOLDERS)


def find_package(name: str, find_links: Iterable[str | Path] = ()) -> Path | None:
    """Return the wheel or the source folder of one of our packages; None if no place has it.

    Args:
        name: Normalised name of the distribution.
        find_links: Folders with wheels. After them come the folder from which this program was installed, and the
            checkout from which it runs.
    """
    for folder in (*map(Path, find_links), *_origin()):
        if wheels := sorted(_wheels(name, folder)):
            return wheels[-1][1]
        source = _sources(folder).get(name)
        if source is not None:
            return source
    return None


def install_words(name: str) -> str:
    """Return what to write after `pip install` for one of our packages: a path or an address, else a path to fill in."""
    source = find_package(name) or _repository_source(name)
    return shell_word(source) if source else f"PATH/TO/{name.replace('-', '_')}.whl"


def install_remedy(distribution: str) -> str:
    """Return what to do to install one of our packages from where this program was installed.

    That is "run: " with a command, or a sentence if no place is known that has the package. The command names the
    interpreter of this program, since it is run in a shell where another one may come first.
    """
    name = distribution.removeprefix("hermes-memory-")
    needs = KNOWN_EXTENSIONS[name].needs if name in KNOWN_EXTENSIONS else ()
    # In one call, because pip would look for the others in an index.
    sources = [find_package(one) or _repository_source(one) for one in (*needs, distribution)]
    if None in sources:
        command = "extensions install" if name in KNOWN_EXTENSIONS else "providers install"
        return (
            f"get its wheel (`make dist` in a clone of this project makes it), name its folder with: hermes-memory config "
            f"set packages.find_links DIR, and run: hermes-memory {command} {name}"
        )
    if shutil.which("uv") and importlib.util.find_spec("pip") is None:
        return f"run: {shell_line(('uv', 'pip', 'install', '--python', sys.executable, *sources))}"
    return f"run: {shell_line((sys.executable, '-m', 'pip', 'install', *sources))}"


def direct_url(distribution: str = CORE) -> dict[str, Any]:
    """Return from where a distribution was installed (PEP 610), {} if it came from an index."""
    with contextlib.suppress(importlib_metadata.PackageNotFoundError, ValueError):
        data = json.loads(importlib_metadata.distribution(distribution).read_text("direct_url.json") or "{}")
        return data if isinstance(data, dict) else {}
    return {}


def _repository_source(distribution: str) -> str | None:
    """Return the address of one of our packages in the repository from which this program was installed."""
    data = direct_url()
    version = data.get("vcs_info")
    if not (isinstance(version, dict) and {"vcs", "commit_id"} <= version.keys() and data.get("url")):
        return None
    place = f"#subdirectory={folder}" if (folder := _FOLDERS[distribution]) else ""
    return f"{version['vcs']}+{data['url']}@{version['commit_id']}{place}"


def _origin() -> Iterator[Path]:
    """Yield the folder of wheels from which this program was installed, and the checkout from which it runs."""
    with contextlib.suppress(ValueError, AttributeError):
        from urllib.request import url2pathname  # imports http and ssl

        address = urlsplit(str(direct_url().get("url", "")))
        if address.scheme == "file":
            place = Path(url2pathname(unquote(address.path)))
            yield place.parent if place.suffix == ".whl" else place
    yield Path(__file__).resolve().parents[1]


def _wheels(name: str, folder: Path) -> Iterator[tuple[object, Path]]:
    """Yield version and path of each wheel of this distribution in the folder."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion

    for path in folder.glob("*.whl"):
        with contextlib.suppress(InvalidWheelFilename, InvalidVersion):
            distribution, version, _, _ = parse_wheel_filename(path.name)
            if distribution == name:
                yield version, path.absolute()


def _sources(folder: Path) -> dict[str, Path]:
    """Return the folders of our packages by name, if `folder` is a checkout of this project."""
    if not (folder / "hermes_core/packages.py").is_file():
        return {}
    places = {name: folder / below for name, below in _FOLDERS.items()}
    return {name: place for name, place in places.items() if (place / "pyproject.toml").is_file()}
