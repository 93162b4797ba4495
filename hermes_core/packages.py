"""The packages of this project and the places that have them.

None of them is registered on a public package index. Whoever registers one of the names first could run code on every
machine that asks an index for it. So they are installed from a file, a checkout, or an index that the person configured.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import importlib_metadata

CORE = "hermes-memory-core"
TESTING = "hermes-memory-testing"


def program_version() -> str:
    """Return the version of this program, "" if it is not installed as a package."""
    with contextlib.suppress(importlib_metadata.PackageNotFoundError):
        return str(importlib_metadata.version(CORE))
    return ""


OWN_PACKAGES = frozenset(
    {
        CORE,
        TESTING,
        *(
            f"hermes-memory-{name}"
            for name in (
                "agent-framework",
                "byterover",
                "google-adk",
                "hindsight",
                "holographic",
                "honcho",
                "langchain",
                "mem0",
                "openai-agents",
                "openviking",
                "pydantic-ai",
                "retaindb",
                "strands",
                "supermemory",
            )
        ),
    }
)


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


def install_words(name: str, find_links: Iterable[str | Path] = ()) -> str:
    """Return what to write after `pip install` for one of our packages: a path, or what to do to get one."""
    path = find_package(name, find_links)
    return shlex.quote(str(path)) if path else f"the wheel of {name} that `make dist` makes"


def extra_remedy(extra: str) -> str:
    """Return the command that installs what an extra of the core needs. All of it comes from others."""
    return f"pip install {shlex.join(extra_packages(extra))}"


def extra_packages(extra: str) -> list[str]:
    """Return the requirements of an extra of the core, without packages of this project.

    >>> extra_packages("zstd")
    ['zstandard>=0.22']
    """
    from packaging.requirements import Requirement

    needs: list[str] = []
    with contextlib.suppress(importlib_metadata.PackageNotFoundError):
        for need in map(Requirement, importlib_metadata.requires(CORE) or ()):
            of_extra = need.marker and need.marker.evaluate({"extra": extra}) and not need.marker.evaluate()
            if of_extra and need.name not in OWN_PACKAGES:
                need.marker = None
                needs.append(str(need))
    return needs


def _origin() -> Iterator[Path]:
    """Yield the folder of wheels from which this program was installed, and the checkout from which it runs."""
    with contextlib.suppress(importlib_metadata.PackageNotFoundError, ValueError, AttributeError):
        text = importlib_metadata.distribution(CORE).read_text("direct_url.json")
        address = urlsplit(str(json.loads(text or "{}").get("url", "")))
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
            called, version, _, _ = parse_wheel_filename(path.name)
            if called == name:
                yield version, path.absolute()


def _sources(folder: Path) -> dict[str, Path]:
    """Return the folders of our packages by name, if `folder` is a checkout of this project."""
    if not (folder / "pyproject.toml").is_file() or not (folder / "hermes_core/packages.py").is_file():
        return {}
    found = {CORE: folder, TESTING: folder / "hermes_core/testing"}
    for group in ("plugins", "integrations"):
        found |= {f"hermes-memory-{path.name}": path for path in (folder / group).glob("*")}
    return {name: path for name, path in found.items() if (path / "pyproject.toml").is_file()}
