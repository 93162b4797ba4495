"""Names for authors of providers: settings, tools, text and a database.

`BackendProvider` is the base class of a provider with settings and a client. `load_settings` reads the fields that
a provider declares, and `ToolBox` turns typed functions into tools.
`Database` is SQLite with one connection a thread and named migrations. `write_atomic` writes a file whole or not at
all. Three modules are imported by their own names: `kit.http` for a server, `kit.process` for a program, and
`kit.cli` for commands. The errors that a provider raises are here too.

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.contract.hooks import TranscriptReader
    from hermes_core.errors import (
        BackendAuthError,
        BackendNotFound,
        BackendRefused,
        BackendUnavailable,
        ConfigError,
        ProviderUnavailable,
        ToolInputInvalid,
    )
    from hermes_core.home import file_name_of
    from hermes_core.kit.backend import (
        RECALL_MODE,
        START_TIMEOUT,
        BackendProvider,
        ConfiguredProvider,
        import_with,
        later_session,
        poll,
    )
    from hermes_core.kit.records import pack_record, page_of, unpack_record
    from hermes_core.kit.settings import Settings, load_settings, save_settings
    from hermes_core.kit.text import (
        bullet_list,
        clip,
        epoch_time,
        fold_space,
        is_trivial,
        key_of,
        local_day,
        person_name,
        profile_name,
        query_text,
        recall_within,
        storable,
        utc_time,
    )
    from hermes_core.kit.tools import Range, ToolBox, tool
    from hermes_core.kit.uploads import FILE_FOLDERS, LocalFile, read_file_to_send
    from hermes_core.safety.redact import redact
    from hermes_core.safety.terminal import printable
    from hermes_core.storage.files import write_atomic
    from hermes_core.storage.sqlite import Database, Migration

_MODULES = {
    "contract.hooks": "TranscriptReader",
    "errors": "BackendAuthError BackendNotFound BackendRefused BackendUnavailable ConfigError "
    "ProviderUnavailable ToolInputInvalid",
    "home": "file_name_of",
    "kit.backend": "BackendProvider ConfiguredProvider RECALL_MODE START_TIMEOUT import_with later_session poll",
    "kit.records": "pack_record page_of unpack_record",
    "kit.settings": "Settings load_settings save_settings",
    "kit.text": "bullet_list clip epoch_time fold_space is_trivial key_of local_day person_name profile_name query_text "
    "recall_within storable utc_time",
    "kit.tools": "Range ToolBox tool",
    "kit.uploads": "FILE_FOLDERS LocalFile read_file_to_send",
    "safety.redact": "redact",
    "safety.terminal": "printable",
    "storage.files": "write_atomic",
    "storage.sqlite": "Database Migration",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "FILE_FOLDERS",
    "RECALL_MODE",
    "START_TIMEOUT",
    "BackendAuthError",
    "BackendNotFound",
    "BackendProvider",
    "BackendRefused",
    "BackendUnavailable",
    "ConfigError",
    "ConfiguredProvider",
    "Database",
    "LocalFile",
    "Migration",
    "ProviderUnavailable",
    "Range",
    "Settings",
    "ToolBox",
    "ToolInputInvalid",
    "TranscriptReader",
    "bullet_list",
    "clip",
    "epoch_time",
    "file_name_of",
    "fold_space",
    "import_with",
    "is_trivial",
    "key_of",
    "later_session",
    "load_settings",
    "local_day",
    "pack_record",
    "page_of",
    "person_name",
    "poll",
    "printable",
    "profile_name",
    "query_text",
    "read_file_to_send",
    "recall_within",
    "redact",
    "save_settings",
    "storable",
    "tool",
    "unpack_record",
    "utc_time",
    "write_atomic",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core.kit' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hermes_core.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
