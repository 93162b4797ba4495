"""What an author of a provider imports instead of writing it again: settings, tools, text and a database.

`load_settings` reads the fields that a provider declares, `ToolBox` turns typed functions into tools, `Database` is
SQLite with a connection a thread and named migrations.
"""

from __future__ import annotations

from hermes_core.kit.settings import Settings, load_settings, parse_bool, save_settings
from hermes_core.kit.text import bullet_list, clip, fold_space, is_trivial, storable
from hermes_core.kit.tools import Range, ToolBox, tool
from hermes_core.storage.sqlite import Database, Migration

__all__ = [
    "Database",
    "Migration",
    "Range",
    "Settings",
    "ToolBox",
    "bullet_list",
    "clip",
    "fold_space",
    "is_trivial",
    "load_settings",
    "parse_bool",
    "save_settings",
    "storable",
    "tool",
]
