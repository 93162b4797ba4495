"""What an author of a provider imports instead of writing it again: settings, tools, text and a database.

`load_settings` reads the fields that a provider declares, `ToolBox` turns typed functions into tools, `Database` is
SQLite with a connection a thread and named migrations, `write_atomic` a file that is whole or not there. `kit.http` and
`kit.process` are modules of their own, for those who talk to a server or run a program. The errors that a provider
raises stand here too.
"""

from __future__ import annotations

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
from hermes_core.kit.commands import command_home
from hermes_core.kit.imports import import_with
from hermes_core.kit.settings import Settings, load_settings, parse_bool, save_settings
from hermes_core.kit.text import bullet_list, clip, fitting, fold_space, is_trivial, printable, storable
from hermes_core.kit.tools import Range, ToolBox, tool
from hermes_core.safety.redact import redact
from hermes_core.storage.files import write_atomic
from hermes_core.storage.sqlite import Database, Migration

__all__ = [
    "BackendAuthError",
    "BackendNotFound",
    "BackendRefused",
    "BackendUnavailable",
    "ConfigError",
    "Database",
    "Migration",
    "ProviderUnavailable",
    "Range",
    "Settings",
    "ToolBox",
    "ToolInputInvalid",
    "TranscriptReader",
    "bullet_list",
    "clip",
    "command_home",
    "file_name_of",
    "fitting",
    "fold_space",
    "import_with",
    "is_trivial",
    "load_settings",
    "parse_bool",
    "printable",
    "redact",
    "save_settings",
    "storable",
    "tool",
    "write_atomic",
]
