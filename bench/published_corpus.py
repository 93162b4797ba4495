"""The packages that `published_chat.py` and `published_gateway.py` run, and what all programs here tell a provider.

Each package gets an environment, a HOME and a HERMES_HOME of its own, with this project and without hermes-agent. The
column `expect` tells where a planted word came back in a survey: S after `sync_turn`, T after tools, E after
`on_session_end`, R in a fresh object under another session id, r under the same one, V through a tool.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = tuple(str(ROOT / folder) for folder in ("", "plugins/agent", "plugins/hermes-agent"))
"""The distributions that run a provider written for Hermes Agent, and chat with it."""

WORD = "Biscuit"
USER = f"Please remember that my dog is called {WORD} and that our database is PostgreSQL 16."
ANSWER = f"I will remember that your dog is called {WORD} and that you use PostgreSQL 16."


@dataclass(frozen=True)
class Package:
    """How to get one package: what pip installs, what makes its folder, and what is to be seen."""

    name: str
    pip: tuple[str, ...]
    expect: str
    no_deps: bool = False
    installer: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    copy: str = ""
    config: str = ""
    secrets: str = ""


CORPUS = (
    Package("hermes-okf", ("hermes-okf==0.5.9",), "ERr"),
    Package(
        "llmwiki",
        ("hermes-llmwiki==0.1.1", "PyYAML"),
        "V",
        config="memory:\n  llmwiki:\n    vault_path: {home}/vault\n",
    ),
    Package("nyx", ("nyx-memory==7.16.0",), "STERrV"),
    Package(
        "mnemosyne",
        ("mnemosyne-hermes==0.7.6", "mnemosyne-memory==4.0.0b6", "PyYAML"),
        "STERrV",
        no_deps=True,
    ),
    Package("memex", ("memex-hermes==0.2.2",), "STERrV"),
    Package(
        "yantrikdb",
        ("yantrikdb-hermes-plugin==0.27.1", "yantrikdb==0.23.2"),
        "STRrV",
        installer=("yantrikdb-hermes", "install"),
    ),
    Package(
        "knos",
        # Its storage client wants an account since 0.9.
        ("knos-hermes==0.1.0", "knos==0.1.1", "sibyl-memory-client<0.9"),
        "TERrV",
        installer=("knos-hermes",),
        setup=("knos", "point", "."),
    ),
    Package(
        "tabularius",
        ("tabularius==1.0.0",),
        "V",
        copy="tabularius",
        # Its relay is asked by a hook that may fail; its tools work without.
        secrets="TABULARIUS_API_KEY=none\nTABULARIUS_BASE_URL=http://127.0.0.1:9/v1\n",
    ),
    Package("betterdb", ("betterdb-hermes-memory==0.1.0",), "loads, unavailable"),
    Package("libravdb", ("hermes-memory-libravdb==0.7.0",), "loads"),
    Package("remnic", ("remnic-hermes==1.0.10",), "loads", copy="remnic_hermes"),
    Package("membase", ("hermes-membase==0.2.0",), "loads", installer=("hermes-membase-install",)),
    Package("loci", ("mowave-loci==0.1.0",), "no provider", copy="loci/adapters/hermes_plugin"),
)


@contextmanager
def at_home(package: Package, keep: Path | None) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """The folder of the package's environment, a home of its own, and the variables that its processes have."""
    with tempfile.TemporaryDirectory(prefix="hermes-published-") as folder:
        environment = (keep or Path(folder)) / package.name
        user = Path(folder, "user")
        home = user / ".hermes"
        home.mkdir(parents=True)
        programs = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        yield environment, home, {"PATH": programs, "HOME": str(user), "LANG": "C.UTF-8"}


def prepare(package: Package, environment: Path, home: Path, env: dict[str, str]) -> Path:
    """Make the environment and what the package puts below the home; return its interpreter."""
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if python.exists():
        quiet_run([*pip, "--no-deps", "--force-reinstall", *OURS])
    else:
        venv.create(environment, with_pip=True)
        quiet_run([*pip, *OURS])
        quiet_run([*pip, *(["--no-deps"] if package.no_deps else []), *package.pip])
    if package.config:
        (home / "vault").mkdir()
        (home / "config.yaml").write_text(package.config.format(home=home))
    if package.secrets:
        (home / ".env").write_text(package.secrets)
        (home / ".env").chmod(0o600)
    if package.installer:
        program, *arguments = package.installer
        quiet_run([str(environment / "bin" / program), *arguments], {**env, "HERMES_HOME": str(home)})
    if package.copy:
        (found,) = environment.glob(f"lib/python*/site-packages/{package.copy}")
        (home / "plugins").mkdir(exist_ok=True)
        (home / "plugins" / package.name).symlink_to(found)
    return python


def quiet_run(command: list[str], env: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=folder, timeout=900)


def writes(tool: str) -> bool:
    """Whether a tool's name says that it stores something."""
    words = (
        "remember",
        "write",
        "add",
        "store",
        "append",
        "create",
        "save",
        "retain",
        "note",
        "record",
        "log",
        "keep",
    )
    return any(word in tool.lower() for word in words)


def arguments(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Arguments for a tool: its required parameters and the usual text, or its texts when it requires none."""
    properties = schema["parameters"].get("properties") or {}
    required = schema["parameters"].get("required") or [
        key for key, value in properties.items() if value.get("type") == "string"
    ]
    # A tool of several actions requires its text for some of them only.
    usual = [key for key in ("content", "query", "text") if key in properties and key not in required]
    return {key: example(properties.get(key) or {}, text, key) for key in (*required, *usual)}


NAMED = {"path": "notes/dog.md", "file": "notes/dog.md", "title": "dog", "name": "dog", "entity": "dog"}
"""What parameters of these names are given: the same when something is written and when it is read."""


def example(schema: dict[str, Any], text: str, name: str = "") -> Any:
    """A value for one parameter."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "string" and name in NAMED:
        return NAMED[name]
    kinds: dict[str, Any] = {"integer": 3, "number": 0.5, "boolean": False, "array": [text], "object": {}}
    kind = schema.get("type")
    return kinds.get(kind, text) if isinstance(kind, str) else text
