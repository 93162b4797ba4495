"""The hooks of an extension: a package that adds commands, importers, engines, indexes, checks or data to a home.

An extension is a module with functions marked `@hookimpl`, named by an entry point in the group
`hermes_core.extensions`. The extensions of this project enter in the same way as any other. Registering is data: the
entry module imports public names of `hermes_core` only, and registers "module:attribute" strings; the module behind a
string is imported when it is used. An extension that can't be imported is a line in `hermes-memory extensions`, `doctor`
and `Memory.problems()`, and stops nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hermes_core.contract.hooks import hookspec
from hermes_core.contract.values import Origin
from hermes_core.errors import ProviderError

EXTENSION_GROUP = "hermes_core.extensions"
"""The entry-point group of extensions."""

PART_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Names and nouns of parts of a home."""


IMPORT_ARCHIVE = "import archive"
"""Name of the command that `hermes-memory import` hands a ZIP archive to. Its target is a function, which gets
the context, the path, the users and the options of `import`."""


class Named(Protocol):
    """Registration that is looked up by its name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


Entry = TypeVar("Entry", bound=Named)


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command of `hermes-memory`.

    Attributes:
        name: The words after `hermes-memory`: "ui", or "storage move" for a command below a group of the core.
        summary: One sentence for `--help`.
        target: "module:attribute" of a click command, imported when the command runs.
        extension: Name of the extension, filled in by the core.
    """

    name: str
    summary: str
    target: str
    extension: str = ""


@dataclass(frozen=True, slots=True)
class ImporterEntry:
    """A format of files with conversations.

    Attributes:
        name: The value of `import --format`.
        about: The files in words, for `--help` and for the error about an unknown file.
        target: "module:attribute" of a function that gets a `Path` and a `SkipLog` and yields conversations
            (`hermes_memory_importers.StreamedSession`). It raises `ImportFailed` if the file can't be read.
        looks_like: "module:attribute" of a function that returns a score for the beginning of a file, 0 for another
            format. It gets the path, the first 16 bytes that are not blank, and a JSON value of the file: one of the
            first twenty lines, or one of the first three elements of a list, or the one value; None for a database of
            SQLite and for a file that is no JSON. The highest score for any of these values reads the file. The formats
            of this project score 1 (a shape that many programs write), 3 (the shape of one program) to 5. An
            `ImportFailed` that it raises is the reason that is shown if nobody else recognises the file.
        patterns: Patterns of file names in lower case, such as "state.db", that are searched in a folder beside *.json,
            *.jsonl and *.ndjson.
        lines_only: True if a file of this format has one JSON object a line.
        extension: Name of the extension, filled in by the core.
    """

    name: str
    about: str
    target: str
    looks_like: str
    patterns: tuple[str, ...] = ()
    lines_only: bool = False
    extension: str = ""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index of messages by meaning, beside the index of words.

    Attributes:
        name: Name of the index, for reports.
        target: "module:attribute" of its factory, imported when a store is opened. The factory gets the engine, the home
            and the configuration, and returns a `VectorIndex` of `hermes_core.sessions.search.protocol`, which must not
            use the database before its first method is called. It raises `ConfigError` if the index can't be used.
        extension: Name of the extension, filled in by the core.
    """

    name: str
    target: str
    extension: str = ""


@dataclass(frozen=True, slots=True)
class HomePart:
    """Data that an extension keeps in a home, such as skills.

    The home remembers in `parts.json` which parts it has, so that none is skipped where its extension is missing.

    Attributes:
        name: Name of the part, in the plural: "skills". Records of an export have it as their kind.
        noun: Name of one item of it: "skill". `memory allow` takes it as an option.
        patterns: Folders of the part below the home, as patterns of `Path.glob` without "..". Those of a user lie below
            the user's folder, "memories/users/*".
        target: "module:attribute" of a factory that gets the home (`HermesHome`) and its `Config`, and returns a
            `PartStore`.
        lock: Name of a file in each folder; `NAME.lock` is locked during a change of the items, and while a backup copies
            the folder. "" for none.
        extension: Name of the extension, filled in by the core.
        package: Distribution of the extension, filled in by the core.
    """

    name: str
    noun: str
    patterns: tuple[str, ...]
    target: str
    lock: str = ""
    extension: str = ""
    package: str = ""

    def folders(self, home: Path) -> list[Path]:
        """Return the folders of this part that hold something."""
        folders = (folder for pattern in self.patterns for folder in home.glob(pattern) if folder.is_dir())
        return [folder for folder in folders if _holds_something(folder)]


def _holds_something(folder: Path) -> bool:
    try:
        return any(path.suffix != ".lock" for path in folder.iterdir())
    except OSError:  # closed to this user, and perhaps not empty
        return True


@dataclass(frozen=True, slots=True)
class PartItem:
    """Item of a part that waits for a person, such as a skill that was written after a look at a web page.

    Attributes:
        handle: Short name for `review`: the noun of the part, a colon, and digits of the hash of the text.
        name: Name of the item.
        text: The text that the person reads.
        origin: Who or what the text comes from.
    """

    handle: str
    name: str
    text: str
    origin: Origin

    @property
    def noun(self) -> str:
        """The noun of the part."""
        return self.handle.partition(":")[0]


class PartItems(Protocol):
    """The items of a part that one owner has."""

    def waiting(self) -> Iterable[PartItem]:
        """Yield each item that no prompt has before a person confirms it."""
        ...

    def text(self, name: str) -> str:
        """Return the text of an item, which a person may allow. Raise `HermesError` if there is no such item."""
        ...

    def confirm(self, item: PartItem) -> None:
        """Store that a person read and confirmed an item. Raise `HermesError` if its text is another one now."""
        ...

    def reject(self, item: PartItem) -> str:
        """Remove an item, and return the command that brings it back."""
        ...

    def history(self, limit: int, before: int | None = None) -> list[Any]:
        """Return the changes, newest first, only those older than `before` if it is given.

        A change has the attributes id, path, action, at, before, after and session_id; before and after are texts.
        """
        ...

    def undo(self, change: int) -> Any:
        """Undo the change of this id, and return it. Raise `HermesError` if the item was changed since."""
        ...

    def restore(self, change: int) -> Any:
        """Bring an item back as it was after this change, and return the change."""
        ...


class PartStore(Protocol):
    """The store of a part in one home.

    `database` is the database of the home, an `Engine` of `hermes_core.storage.engine`. The caller closes it.
    """

    def items(self, database: Any, owner: str) -> PartItems:
        """Return the items of a `Session.owner`, "" for the person at home."""
        ...

    def export_records(
        self, database: Any, wanted: Callable[[str], bool], leave_out: Callable[[str], object]
    ) -> Iterable[dict[str, Any]]:
        """Yield a JSON object for each item. It has `folder`, `path` and `origin`, and all that an import needs.

        Args:
            wanted: Returns True for the name of a user's folder, "" for the home, that is exported.
            leave_out: Gets a sentence for each thing that no record can hold.
        """
        ...

    def check_record(self, record: Mapping[str, Any]) -> None:
        """Raise `ImportFailed` if a record is none that `export_records` yields. Records come from anywhere."""
        ...

    def import_record(self, database: Any, record: Mapping[str, Any], *, keep_origins: bool) -> str:
        """Store a record that was checked, and return "imported", "present", or "different" if it stays out.

        Args:
            keep_origins: True if a person says that the record is their own. Else the item waits for `review`.
        """
        ...

    def check_text(self, name: str, text: str) -> None:
        """Raise `HermesError` if a text from another program can't be an item of this name."""
        ...

    def forget(self, database: Any, owner: str) -> None:
        """Delete all items of a user, with their history."""
        ...


class ForeignLoader(Protocol):
    """The steps of loading a provider that was written for another host, and of running one of ours there.

    Discovery and loading belong to the core. It asks for these steps where the other host differs.
    """

    @property
    def reserved_modules(self) -> frozenset[str]:
        """Names of modules that mean the host's own, also if a plugin folder has a file of that name."""
        ...

    def holds_provider(self, folder: Path, manifest: Mapping[str, Any]) -> bool:
        """Return False if a plugin folder holds another sort of plugin. It runs none of the folder's code."""
        ...

    def refusal(self, candidate: Any) -> ProviderError | None:
        """Return the error for a provider whose plugin.yaml asks for another host or system, None for any other.

        It runs none of the provider's code.
        """
        ...

    def surroundings(self, home: Path, sessions: object) -> AbstractContextManager[None]:
        """Return a context in which code finds the modules and the environment of its host.

        Args:
            home: The home of the memory.
            sessions: The session store of the home, None if there is none.
        """
        ...

    def context(self) -> Any:
        """Return the `ctx` for `register(ctx)`. Its attribute `provider` is the registered provider, or None."""
        ...

    def companions(self, candidate: Any) -> Any:
        """Run `register(ctx)` of the other plugins of the provider's package, and return their joint `ctx`, or None."""
        ...

    def adapt(
        self, provider: object, candidate: Any, home: Any, contexts: Iterable[Any], module: str
    ) -> object:
        """Return a provider with our hooks around one of the other host.

        Args:
            provider: The provider that was found.
            candidate: Its place.
            home: The `HermesHome` of the memory.
            contexts: The `ctx` of its `register(ctx)` and of its companions, as far as there are any.
            module: The module in which it was found.
        """
        ...

    def may_register_later(self, folder: Path, *, has_register: bool) -> bool:
        """Return True if the source of a plugin folder that registered no provider may register one later.

        Else record that the folder holds no provider, so that `holds_provider` knows it.

        Args:
            folder: The folder, which was imported.
            has_register: True if its module has a function `register`.
        """
        ...

    def missing_module(self, name: str, module: str) -> ProviderError | None:
        """Return the error for a module of the host that is not here, None if the module is not of the host.

        Args:
            name: The provider that imports it.
            module: The missing module.
        """
        ...

    def commands(self, factory: Callable[[], object], name: str) -> Any:
        """Return the click command `name` of a provider, which forwards its words to the parsers of the other host."""
        ...

    def register(self, ctx: Any, name: str, host_name: str) -> None:
        """Register the provider `name` of ours in the other host, from the `register(ctx)` of a plugin there."""
        ...

    def add_commands(self, parser: Any, name: str, host_name: str) -> None:
        """Let an argparse parser of the other host forward its words to the commands of our provider `name`."""
        ...


class Registrations(Generic[Entry]):
    """The entries of one kind that an extension registers. The first entry of a name counts."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Register one entry. Raises `ValueError` if its name is empty or taken by the same extension."""
        if not entry.name or entry.name in self._entries:
            raise ValueError(f"{entry.name!r} is registered twice, or empty")
        self._entries[entry.name] = entry

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The entries by name, in the order of registration."""
        return self._entries


class ExtensionHooks:
    """Specifications of the extension hooks. An extension implements those that it needs.

    Each hook is called on the thread that needs its answer. Only `examine` may wait for a network, and only with
    `trial`. Only `examine` and `on_home_opened` may read or write files.
    """

    @hookspec
    def register_commands(self, commands: Registrations[CommandEntry]) -> None:
        """Register commands of `hermes-memory`. Called when the command line starts."""

    @hookspec
    def register_importers(self, importers: Registrations[ImporterEntry]) -> None:
        """Register formats of files with conversations. Called by `hermes-memory import`, also for its `--help`."""

    @hookspec
    def register_indexes(self, indexes: Registrations[IndexEntry]) -> None:
        """Register an index of messages by meaning. Called when a store is opened. A store uses the first one."""

    @hookspec(firstresult=True)
    def open_engine(self, url: str) -> str | None:
        """Return "module:attribute" of what opens the database at `url`, None for an address of somebody else.

        Called when a home with `storage.url` is opened. The attribute is called with the block `storage:` of config.yaml,
        `password=` and `moving=` ("read" or "write" for a move of the store, else ""), and returns a `SearchEngine` of
        `hermes_core.sessions.search.protocol` that is also a `NoteEngine`. It must not connect: the first statement does.
        """

    @hookspec(firstresult=True)
    def load_foreign(self, host: str) -> ForeignLoader | None:
        """Return the loader of providers written for `host`, such as "hermes_agent"; None for a host of somebody else.

        Called when such a provider is listed or loaded, and when a provider of ours enters that host.
        """

    @hookspec
    def home_parts(self) -> Iterable[HomePart]:
        """Return the parts of a home that belong to this extension.

        Export, backup, restore, forget, review and the timeline treat them as data. Called by these commands,
        and when a home is opened, to record that the extension has stored something there.
        """
        raise NotImplementedError

    @hookspec
    def examine(self, home: Path, config: Any, trial: bool) -> Iterable[Any]:
        """Return findings about what this extension has in the home, for `doctor` and `status`. It may read files.

        With `trial`, which `doctor` gives, it may also ask servers that are configured.
        """
        raise NotImplementedError

    @hookspec
    def on_home_opened(self, memory: Any) -> None:
        """Start what the extension does in the background of an open memory. Called at the end of `open_memory`.

        It must return at once: whatever takes time runs on a thread of its own, ended by `memory.internals.at_close`.
        """

    @hookspec(firstresult=True)
    def make_tracer(self, config: Any) -> Any:
        """Return the telemetry of a memory whose config.yaml switches it on, None to leave it to others."""


EXTENSION_HOOKS = tuple(name for name, value in vars(ExtensionHooks).items() if not name.startswith("_"))
"""The names of the extension hooks, in the order of the class."""
