"""Conversations of other tools, read into one shape; what is done with them is `memory.py`'s business.

`read_file` and `stream_file` find out which format a file has. Ids are made from what the file says, so that a second import of the same
file, or of a later export that goes on with the same sessions, is recognised.
"""

from __future__ import annotations

from hermes_core.importers.detect import FORMATS, read_file, stream_file
from hermes_core.importers.skipped import Skip, Skipped
from hermes_core.importers.values import ImportedMessage, ImportedSession, ImportedTurn

__all__ = [
    "FORMATS",
    "ImportedMessage",
    "ImportedSession",
    "ImportedTurn",
    "Skip",
    "Skipped",
    "read_file",
    "stream_file",
]
