"""The settings, declared once for validation, status and setup."""

from __future__ import annotations

from pathlib import Path

from hermes_core import Field
from hermes_core.kit import FILE_FOLDERS, RECALL_MODE, Settings

NAME = "retaindb"
KEY = "RETAINDB_API_KEY"
CLOUD = "https://api.retaindb.com"

SETTINGS = (
    Field(
        "api_key",
        env=KEY,
        secret=True,
        help="Key of RetainDB Cloud or of your server; RetainDB Local needs none.",
        url="https://retaindb.com",
    ),
    Field(
        "base_url",
        str,
        CLOUD,
        "Address: the cloud, your own server, or RetainDB Local (http://127.0.0.1:3111).",
        env="RETAINDB_BASE_URL",
        identity=True,
    ),
    Field(
        "project",
        str,
        "",
        "Project that holds the memories; empty: one for each profile.",
        env="RETAINDB_PROJECT",
        identity=True,
    ),
    Field("user_id", str, "default", "Who sits at the command line, as RetainDB knows them.", identity=True),
    RECALL_MODE,
    Field("max_results", int, 8, "Memories that a turn is given at most.", minimum=1, maximum=20),
    Field(
        "min_score",
        float,
        0.4,
        "Memories that fit a message less than this are left out.",
        minimum=0.0,
        maximum=1.0,
    ),
    Field(
        "file_tools",
        str,
        "auto",
        "Offer the file store to the model; auto: when there is a key, which RetainDB Local has none.",
        choices=("auto", "on", "off"),
    ),
    FILE_FOLDERS,
    Field("timeout", float, 8.0, "Seconds to wait for an answer.", minimum=0.5, maximum=30.0),
)


def project_of(options: Settings, home: Path) -> str:
    """Return the project of a home: the configured one, else one for each profile with Hermes Agent's name for it."""
    if options.project:
        return str(options.project)
    return "default" if home.name in ("", ".hermes") else f"hermes-{home.name}"
