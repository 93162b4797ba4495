"""The commands `hermes-memory memory export` and `import`: MEMORY.md, USER.md and PROJECT.md in a folder for Git or a move."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from hermes_core import Memory, Notes
from hermes_core.actions.notes import session_of_user
from hermes_core.cli.options import user_option, with_memory
from hermes_core.cli.output import finish, print_result, warn
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.document import join_entries, parse_note_file
from hermes_core.curated.origins import ORIGINS, UNKNOWN, Note, entry_hash, plain_origin, read_origins
from hermes_core.curated.places import owner_of_folder
from hermes_core.curated.store import TARGETS
from hermes_core.curated.view import NoteView
from hermes_core.errors import CuratedMemoryError, MemoryConflict
from hermes_core.kit import file_name_of, printable, write_atomic
from hermes_core.safety.terminal import counted
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder

# Folders of a `memories` folder that may hold notes.
_PROJECTS, _USERS = "projects", "users"


_all_users_option = click.option(
    "--all-users", is_flag=True, help="Also the notes of all users of a gateway, in users/."
)


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@user_option
@_all_users_option
@with_memory(begins=False)
def export_files(opened: Memory, folder: Path, user: str, all_users: bool) -> None:
    """Write MEMORY.md, USER.md and the PROJECT.md of each repository into DIR, for Git or another home.

    `origins.json` beside them says which entries nobody said. Files of an earlier export are overwritten. For sessions and
    history as well, see hermes-memory export.
    """
    counts = export_note_files(opened, folder, user, all_users=all_users)
    lines = [f"{folder / name}: {counted(count, 'entry', 'entries')}" for name, count in counts.items()]
    text = "\n".join(map(printable, lines)) or "There are no notes yet."
    print_result(counts, lambda: click.echo(text))


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@user_option
@_all_users_option
@with_memory()
def import_files(opened: Memory, folder: Path, user: str, all_users: bool) -> None:
    """Make the notes what MEMORY.md, USER.md and projects/*/PROJECT.md in DIR say. A missing file changes nothing.

    This is an edit by hand: hermes-memory memory undo takes it back. With storage.url, DIR may be the folder `memories` of
    this home, whose files are not read any more.
    """
    imported = import_note_files(opened, folder, user, all_users=all_users)
    done = {file.file: file.result for file in imported if file.result.get("success")}
    refused = [f"{file.file}: {file.result['error']}" for file in imported if file.file not in done]
    lines = [printable(f"{name}: {result['message']}") for name, result in done.items()]
    print_result(imported, lambda: click.echo("\n".join(lines), nl=bool(lines)))
    for result in done.values():
        warn(filter(None, [result.get("caution"), result.get("warning")]))
    finish(click.get_current_context(), [*refused, *opened.problems()], failed=bool(refused))


class NotesFile(Struct, frozen=True):
    """One file of notes in a folder, and the store of its notes.

    `key` is its path in the folder; `session` is one of its owner.
    """

    key: str
    target: MemoryTarget
    store: Notes
    session: Session


class ImportedFile(Struct, frozen=True):
    """Result of the import of one file: its path in the folder, and the result of the store."""

    file: str
    result: dict[str, Any]


def export_note_files(
    memory: Memory, folder: Path, user: str = "", *, all_users: bool = False
) -> dict[str, int]:
    """Write notes as files into a folder, with their origins beside them. Return the number of entries by file.

    The files of an earlier export are overwritten.

    Args:
        user: A `Session.outside_id` whose MEMORY.md and USER.md are written; "" for the person at home, with the notes on
            all repositories.
        all_users: True to write the notes of all users too, in folders below `users`.

    Raises:
        CuratedMemoryError: The folder is that of the notes, or notes can't be read. Files may have been written.
        StorageError: A file can't be written.
    """
    _refuse_own_folder(memory, folder)
    owners = [*([user] if user else [""]), *(memory.curated.places.owners() if all_users else ())]
    counts: dict[str, int] = {}
    for notes in [notes for owner in owners for notes in _notes_of(memory, owner, alone=owner == user)]:
        stored, path = notes.store.read(), folder / notes.key
        entries = stored.entries(notes.target)
        if entries or path.exists():
            ensure_folder(path.parent)
            write_atomic(path, join_entries(entries).encode("utf-8"), PRIVATE_FILE)
            counts[notes.key] = len(entries)
        beside = folder if notes.target == "project" else path.parent
        file = stored.files.get(notes.target)
        _write_origins(beside, file.notes if file else (), anew=notes.target == "memory")
    return counts


def _write_origins(folder: Path, notes: Iterable[Note], *, anew: bool) -> None:
    """Write the origins of exported notes beside them.

    Args:
        anew: True for the first file of a folder; False to add to what was written.

    Raises:
        StorageError: The file can't be written.
    """
    path = folder / ORIGINS
    if anew:
        path.unlink(missing_ok=True)
    new = {
        entry_hash(note.text): plain_origin(note.origin)
        for note in notes
        if plain_origin(note.origin).keys() - {"at", "session"} != {"origin"}
        or note.origin.origin != "person"
    }
    if new:
        entries = {key: plain_origin(origin) for key, origin in read_origins(folder).items()} | new
        write_atomic(path, (json.dumps({"version": 1, "entries": entries}, indent=1) + "\n").encode())


def import_note_files(
    memory: Memory, folder: Path, user: str = "", *, all_users: bool = False
) -> list[ImportedFile]:
    """Make the notes what the files of a folder say, as an edit by hand that can be undone. Missing files change nothing.

    Texts that are new here keep the origin that the file of origins in the folder gives them; without such a file they
    are the person's.

    Args:
        user: A `Session.outside_id` whose MEMORY.md and USER.md are in the folder; "" for the person at home.
        all_users: True to take the notes of all users too, from folders below `users`.

    Raises:
        CuratedMemoryError: There is no such file, or one can't be read.
        StorageError: The notes can't be written.
    """
    _refuse_own_folder(memory, folder)
    files = list(_files_in(memory, folder, user))
    if all_users:
        for path in sorted((folder / _USERS).glob("*")):
            if owner := owner_of_folder(path.name):
                files += _files_in(memory, folder, owner, alone=False)
    if not files:
        names = "MEMORY.md, USER.md or projects/*/PROJECT.md"
        raise CuratedMemoryError(f"{str(folder)!r} has no {names}", "name the folder with these files")
    texts = [_text_of(folder / notes.key) for notes in files]  # before the first change
    return [_import(folder, notes, text) for notes, text in zip(files, texts, strict=True)]


def _import(folder: Path, notes: NotesFile, text: str) -> ImportedFile:
    store, target = notes.store, notes.target
    base = store.entries(target)
    beside = folder if target == "project" else (folder / notes.key).parent
    try:
        origins = read_origins(beside)
    except MemoryConflict:  # no text of a page may pass for a person's
        written = parse_note_file(text.encode("utf-8")).entries
        origins = {entry_hash(entry): UNKNOWN for entry in written}
    result = store.edit(target, text, base, session=notes.session, action="import", origins=origins)
    return ImportedFile(notes.key, result)


def _notes_of(memory: Memory, owner: str, *, alone: bool) -> Iterator[NotesFile]:
    """Yield the notes of an owner.

    Args:
        alone: True if their files are at the top of the folder.
    """
    session = session_of_user(memory, owner)
    store = memory.curated.of(session)
    folder = "" if alone else f"{_USERS}/{file_name_of(owner)}/"
    for target in TARGETS:
        yield NotesFile(f"{folder}{target.upper()}.md", target, store, session)
    for key in memory.curated.places.repositories() if not owner else ():
        yield NotesFile(
            f"{_PROJECTS}/{key}/PROJECT.md", "project", memory.curated.of_repository(key), session
        )


def _files_in(memory: Memory, folder: Path, owner: str, *, alone: bool = True) -> Iterator[NotesFile]:
    """Yield the notes of an owner of which a folder has the file."""
    for notes in _notes_of(memory, owner, alone=alone):
        if notes.target != "project" and (folder / notes.key).exists():
            yield notes
    for path in sorted(folder.glob(f"{_PROJECTS}/*/PROJECT.md")) if not owner else ():
        store = memory.curated.of_repository(path.parent.name)
        yield NotesFile(path.relative_to(folder).as_posix(), "project", store, session_of_user(memory, owner))


def _text_of(path: Path) -> str:
    view = NoteView(path)
    data = view.read() or b""
    if conflict := parse_note_file(data).conflict:
        raise view.unreadable(conflict, "save it as UTF-8 text")
    return data.decode("utf-8")


def _refuse_own_folder(memory: Memory, folder: Path) -> None:
    if folder.resolve() == memory.home.memories.resolve():
        raise CuratedMemoryError(f"{str(folder)!r} is the folder of the notes", "name another folder")
