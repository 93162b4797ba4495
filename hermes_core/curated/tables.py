"""The tables of the notes. A file is MEMORY.md, USER.md or PROJECT.md of one owner, known by the path of its view."""

from __future__ import annotations

from hermes_core.storage.tables import Index, Table, integer, number, real, text, texts

NOTE_TABLES = (
    # `version` counts the writes of a file. A write names the version that it has read, so that nobody holds a lock.
    Table(
        "notes",
        (text("file", key=True), text("owner"), text("target"), integer("version"), real("changed_at")),
        (Index("notes_by_owner", "owner"),),
        fill=70,
    ),
    # `origin` is `open:` and the id of a turn until the turn in which a model wrote the entry has ended well.
    Table(
        "note_entries",
        (
            *(text("file"), integer("position"), text("text"), text("origin"), real("at"), text("session")),
            *(text("confirmed"), integer("pinned"), integer("change")),
        ),
        key=("file", "position"),
    ),
    # `gone` has the origins of the entries that a change took away, by their hashes.
    Table(
        "note_changes",
        (
            *(
                number("id"),
                text("file"),
                text("target"),
                text("action"),
                real("at"),
                text("before"),
                text("after"),
            ),
            *(text("gone"), text("session"), text("writes"), integer("undoes", null=True)),
            *(integer("undone", 0), text("provider", "")),
        ),
        (
            Index("note_changes_by_file", "file, id"),
            Index("note_changes_by_provider", "provider, id", where="provider <> ''"),
        ),
    ),
    Table(
        "note_events",
        (
            *(
                integer("id", key=True),
                real("at"),
                text("kind"),
                integer("change", null=True),
                text("subject"),
            ),
            *(text("details", null=True), text("digest"), text("hash")),
        ),
        (Index("note_events_by_subject", "subject", where="subject <> ''"),),
    ),
    # What this program last saw in the views of one machine and home.
    Table(
        "note_views",
        (text("place"), text("file"), text("bytes_hash"), text("text_hash"), text("text")),
        key=("place", "file"),
    ),
    # The key of the notes on each repository, by its identity (machine "") and by the folders of each machine.
    Table(
        "project_keys",
        (text("machine"), text("place"), text("key"), *texts("git", "earlier")),
        key=("machine", "place"),
    ),
)
