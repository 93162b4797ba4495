"""The hooks of this home in the settings of programs: how they are added, found and taken back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_core.errors import ConfigError, HermesError, StorageError
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder, remedy_for, write_checked
from hermes_memory_capture.hook import FOLDER
from hermes_memory_capture.programs import HOOK, PROGRAMS, Program
from hermes_memory_capture.settings_text import (
    cut_out,
    hook_commands,
    hook_insertions,
    inserted,
    taken_back,
    without_hooks,
)

PLUGIN = Path(__file__).with_name("opencode_plugin.js")


class Install(Struct, frozen=True):
    """The hooks of a program in one file of settings.

    Attributes:
        file: The file of settings.
        project: Folder of the project; "" for all projects of the account.
        data: Folder of the program's transcripts.
        at: Time of the installation in epoch seconds.
        insertions: What was inserted into the text of the file; none for a file that is all ours.
        digest: SHA-256 of the file with them.
    """

    program: str
    file: str
    project: str
    data: str
    at: float
    insertions: list[tuple[int, str]] = []
    digest: str = ""


class Installs:
    """The installations of a home, in `capture/installs.json`."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.folder = self.home / FOLDER
        self._file = self.folder / "installs.json"

    def all(self) -> list[Install]:
        """Return the installations. Raises `StorageError` if the file with them can't be read."""
        try:
            installs = msgspec.json.decode(self._file.read_bytes(), type=list[Install])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as exc:
            raise StorageError(
                f"can't read {str(self._file)!r}: {exc}", "delete it, and install the hooks again"
            ) from exc
        for install in installs:
            if install.program not in PROGRAMS:
                raise StorageError(
                    f"{str(self._file)!r} names the program {install.program!r}, which this version does not know",
                    "update hermes-memory-capture",
                )
        return installs

    def planned(self, program: Program, project: Path | None) -> tuple[Path, str]:
        """Return the file of settings and its text with the hooks.

        Raises:
            ConfigError: The file can't be changed, or the program is installed for other projects.
        """
        file = self._settings_of(program, project)
        self._refuse_second(program, file)
        text = self._without_own(program, file)
        return file, self._with_hooks(program, file, text)[0]

    def install(self, program: Program, project: Path | None) -> Install:
        """Add the hooks to the settings, in place of earlier ones of this home. Raises as `planned` does."""
        file = self._settings_of(program, project)
        self._refuse_second(program, file)
        ensure_folder(self.folder / "spool")
        for folder in (self.folder, self.folder / "spool"):
            folder.chmod(0o700)
        before, base = _bytes_of(file), self._without_own(program, file)
        text, insertions = self._with_hooks(program, file, base)
        installs = self.all()
        earlier = next((one for one in installs if one.file == str(file)), None)
        if insertions == [] and before is not None and (earlier is None or earlier.insertions):
            insertions = [(0, text.removesuffix(base))]  # the file was there, and empty
        data = text.encode()
        mode = file.stat().st_mode & 0o777 if file.exists() else PRIVATE_FILE
        record = Install(
            program.name,
            str(file),
            "" if project is None else str(project),
            str(program.data_folder()),
            # What was missed since an earlier installation is caught up with.
            earlier.at if earlier else time.time(),
            insertions,
            hashlib.sha256(data).hexdigest(),
        )
        # First the record: what it names and is not in the file is taken back without harm.
        self._store([*(one for one in installs if one is not earlier), record])
        try:
            write_checked(file, data, mode, _unchanged(file, before))
        except HermesError:
            self._store(installs)
            raise
        return record

    def uninstall(self, install: Install) -> None:
        """Take the hooks out of the settings. What else stands there stays as it is."""
        file, program = Path(install.file), PROGRAMS[install.program]
        before = _bytes_of(file)
        if before is not None:
            text = self._without_own(program, file)
            if text or install.insertions:
                write_checked(file, text.encode(), file.stat().st_mode & 0o777, _unchanged(file, before))
            else:
                file.resolve().unlink()  # a link stays, to a file that was not there before
        self._store([one for one in self.all() if one != install])

    def text_without(self, install: Install) -> str:
        """Return the text of the settings without the hooks, "" if nothing else is there."""
        return self._without_own(PROGRAMS[install.program], Path(install.file))

    def missing_events(self, install: Install) -> list[str]:
        """Return the events without their hook in the settings."""
        program, text = PROGRAMS[install.program], _text_of(Path(install.file))
        if program.entry == "plugin":
            return [] if text == self._plugin() else ["the plugin"]
        with _naming(Path(install.file)):
            hooks = list(hook_commands(text)) if text.strip() else []
        return [
            event
            for event, action in program.events.items()
            if not any(
                own == event and program.command(self.home, action) in command for own, command in hooks
            )
        ]

    def _settings_of(self, program: Program, project: Path | None) -> Path:
        if project is None:
            return program.home() / program.settings
        return project / program.project_settings

    def _refuse_second(self, program: Program, file: Path) -> None:
        """Raise `ConfigError` if two installations would handle the same event."""
        for other in self.all():
            if other.program == program.name and other.file != str(file):
                if other.project and str(file) != str(self._settings_of(program, None)):
                    continue
                place = f"the project {other.project!r}" if other.project else "all projects"
                option = f" --project {other.project!r}" if other.project else ""
                raise ConfigError(
                    f"the hooks of {program.title} are installed for {place}, and would run twice",
                    f"first run: hermes-memory capture uninstall {program.name}{option}",
                )

    def _with_hooks(self, program: Program, file: Path, text: str) -> tuple[str, list[tuple[int, str]]]:
        if program.entry == "plugin":
            if text:
                raise ConfigError(f"{str(file)!r} holds another plugin", "move it, then try again")
            return self._plugin(), []
        if not text.strip():
            root = {"version": 1} if program.entry == "flat" else {}
            whole = {**root, "hooks": {event: [entry] for event, entry in self._entries(program).items()}}
            return json.dumps(whole, indent=2) + "\n" + text, []
        with _naming(file):
            insertions = hook_insertions(text, self._entries(program))
        return inserted(text, insertions), insertions

    def _entries(self, program: Program) -> dict[str, dict[str, object]]:
        return {event: program.hook_entry(self.home, action) for event, action in program.events.items()}

    def _plugin(self) -> str:
        command = json.dumps(PROGRAMS["opencode"].words(self.home))
        return PLUGIN.read_text(encoding="utf-8").replace('["COMMAND"]', command)

    def _without_own(self, program: Program, file: Path) -> str:
        """Return the text of the settings without the hooks of this home, "" if nothing else is there."""
        text = _text_of(file)
        record = next((one for one in self.all() if one.file == str(file)), None)
        if record is not None and hashlib.sha256(text.encode()).hexdigest() == record.digest:
            return taken_back(text, record.insertions) if record.insertions else ""
        if program.entry == "plugin":
            if str(HOOK) in text and str(self.home) in text:
                raise ConfigError(f"{str(file)!r} was changed since", "delete it yourself")
            return text
        if (
            record is not None
            and record.insertions
            and (rest := cut_out(text, record.insertions)) is not None
        ):
            return rest
        if not text.strip():
            return text
        with _naming(file):
            for action in dict.fromkeys(program.events.values()):
                text = without_hooks(text, program.command(self.home, action))
        return text

    def _store(self, installs: list[Install]) -> None:
        data = msgspec.json.format(msgspec.json.encode(installs), indent=2)
        write_checked(self._file, data, PRIVATE_FILE, lambda: None)


@contextlib.contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the file in an error about its text."""
    try:
        yield
    except ConfigError as exc:
        raise ConfigError(f"{str(file)!r}: {exc.message}", exc.remedy) from exc


def _bytes_of(file: Path) -> bytes | None:
    if file.exists() and not file.is_file():  # a pipe would be read until somebody writes into it
        raise ConfigError(f"{str(file)!r} is no file", "move it, then try again")
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigError(
            f"can't read {str(file)!r}: {exc.strerror or exc}", remedy_for(exc, "check its owner")
        ) from exc


def _text_of(file: Path) -> str:
    try:
        return (_bytes_of(file) or b"").decode()
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{str(file)!r} is not UTF-8 text", "save it as UTF-8") from exc


def _unchanged(file: Path, before: bytes | None) -> Callable[[], None]:
    """Return a check that raises if another program has changed the file meanwhile."""

    def check() -> None:
        if _bytes_of(file) != before:
            raise ConfigError(f"{str(file)!r} was changed by another program", "try again")

    return check
