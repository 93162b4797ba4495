"""HERMES_HOME and every path under it.

A home is a value that callers pass on. Nothing is read at import. Profiles are homes of their own under `profiles/NAME`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from hermes_core.errors import ConfigError

_VARIABLE = re.compile(r"\$\{?\w|%\w+%")
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

# With any ending, such a name is a device on Windows: what is written there is gone.
_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])[ ]*(?:\..*)?")


_asking: ContextVar[HermesHome | None] = ContextVar("hermes_home_that_asks", default=None)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with its "~" resolved. Raises `ConfigError` if the home folder is unknown or the path is no UTF-8."""
    try:
        resolved = Path(path).expanduser()
        str(resolved).encode()
        return resolved
    except UnicodeEncodeError as exc:
        raise ConfigError(f"{os.fspath(path)!r} is no UTF-8", "name a folder whose path is") from exc
    except RuntimeError as exc:
        raise ConfigError(
            f"the home folder that {os.fspath(path)!r} begins with is unknown here",
            "write the whole path, for a HERMES_HOME too, or set HOME",
        ) from exc


HOME_VARIABLES = ("HERMES_HOME", "HERMES_PROFILE")
"""Environment variables that name a home."""


FOLDER_PREFIX = "folder:"
"""Prefix of a `memory.provider` that chooses a plugin folder, also if its name is that of a bundled provider."""


class HermesHome(Struct, frozen=True):
    """A HERMES_HOME. `path` is absolute; `profile` is "default" for the home itself."""

    path: Path
    profile: str = "default"

    @classmethod
    def resolve(
        cls,
        home: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> HermesHome:
        """Find the home: `home`, else HERMES_HOME, else ~/.hermes; then `profile`, else HERMES_PROFILE, inside it.

        Without arguments, a hook that gets no session is given the home of the host that asks. Raises `ConfigError` for
        a profile name that could leave the `profiles` folder, and for a home that begins with a variable.
        """
        if home is None and profile is None and environ is None and (asking := _asking.get()):
            return asking
        env = os.environ if environ is None else environ
        named = home or env.get("HERMES_HOME") or _default_root(env)
        if _VARIABLE.match(os.fspath(named)):  # as from the file of an MCP client, or a unit of systemd
            raise ConfigError(
                f"the home is {os.fspath(named)!r}, and no variable is filled in here",
                "write the whole path, or one that begins with ~",
            )
        root = expanded(named).absolute()
        name = profile if profile is not None else env.get("HERMES_PROFILE", "")
        if not name or name == "default":
            return cls(root)
        if not _PROFILE_NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} can't be a profile's name", "use letters from a to z, digits, '-', '_' and '.'"
            )
        if fault := folder_fault(name):
            raise ConfigError(f"{name!r} can't be a profile's name: {fault}", "choose another name")
        name = _stored_spelling(root / "profiles", name)
        return cls(root / "profiles" / name, name)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let `resolve()` return this home meanwhile, for `is_available` and `backup_paths`, which get no session."""
        token = _asking.set(self)
        try:
            yield
        finally:
            _asking.reset(token)

    @property
    def config_yaml(self) -> Path:
        """Settings of the host, edited by people."""
        return self.path / "config.yaml"

    @property
    def env_file(self) -> Path:
        """Secrets, mode 0600."""
        return self.path / ".env"

    @property
    def memories(self) -> Path:
        """Folder of the notes."""
        return self.path / "memories"

    @property
    def memory_md(self) -> Path:
        """The agent's notes."""
        return self.memories / "MEMORY.md"

    @property
    def user_md(self) -> Path:
        """The person's profile."""
        return self.memories / "USER.md"

    def project_md_of(self, repository: str) -> Path:
        """The notes on a repository; `repository` is its `Repository.key`."""
        return self.memories / "projects" / repository / "PROJECT.md"

    def folder_of(self, owner: str) -> Path:
        """Return the folder of one user of a gateway, in which are MEMORY.md, USER.md and `skills`."""
        return self.memories / "users" / file_name_of(owner)

    @property
    def state_db(self) -> Path:
        """Every message of every session."""
        return self.path / "state.db"

    @property
    def outbox_db(self) -> Path:
        """Writes that a provider has not taken yet."""
        return self.path / "outbox.db"

    @property
    def plugins(self) -> Path:
        """Folders of providers, one each."""
        return self.path / "plugins"

    @property
    def skills(self) -> Path:
        """SKILL.md files by category."""
        return self.path / "skills"

    @property
    def soul_md(self) -> Path:
        """The agent's identity, if the person wrote one."""
        return self.path / "SOUL.md"

    @property
    def verdicts_json(self) -> Path:
        """The file of texts that the person allowed although the threat scan flags them, and of folders that they trust."""
        return self.path / "verdicts.json"

    @property
    def logs(self) -> Path:
        """Folder of log files."""
        return self.path / "logs"

    @property
    def log_file(self) -> Path:
        """The log, one JSON object a line."""
        return self.path / "logs" / "hermes.log"

    def provider_json(self, name: str) -> Path:
        """Return the file of a provider's settings that are no secrets."""
        # A folder that was chosen on purpose reads the file of its own name.
        return self.path / f"{name.removeprefix(FOLDER_PREFIX)}.json"


def file_name_of(key: str) -> str:
    """Return a file name for `key`: readable, safe, and different for each key, also if the file system ignores case.

    >>> file_name_of("telegram:42")
    'telegram%3A42-65d845543dfff5c3'
    """
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{quote(key, safe='', errors='replace')[:80]}-{digest[:16]}" if len(key) <= 80 else digest


def folder_fault(name: str) -> str:
    """Return why a folder of this name would be another one, or none, on some system; "" if it is the same on all.

    >>> folder_fault("nul.txt")
    'Windows has a device of that name'
    """
    if _DEVICE.fullmatch(name):
        return "Windows has a device of that name"
    return "Windows cuts the end off" if name.endswith((".", " ")) else ""


def _stored_spelling(folder: Path, name: str) -> str:
    """Return the name of the entry that is opened as `name`: of another case, if the file system ignores case."""
    path = folder / name
    if not path.is_dir():
        return name
    entries = {entry.name for entry in folder.iterdir() if entry.name.casefold() == name.casefold()}
    return (
        name if name in entries else next(filter(lambda entry: path.samefile(folder / entry), entries), name)
    )


def _default_root(env: Mapping[str, str]) -> Path:
    local = env.get("LOCALAPPDATA") if os.name == "nt" else None
    return Path(local, "hermes") if local else Path("~/.hermes")
