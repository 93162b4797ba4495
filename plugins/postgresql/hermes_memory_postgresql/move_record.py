"""Record of a move that a home has begun: what a second run can't know any more when config.yaml names the target."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hermes_core import HermesHome
from hermes_core.errors import StorageError
from hermes_core.kit import write_atomic
from hermes_core.storage.files import sync_folder


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move that this home has begun, and whose receipt was not shown yet.

    Attributes:
        move_id: Id of the move, as in the marks of both stores.
        source: `storage.url` and `storage.schema` of the source; two empty texts for files.
        target: The same of the target.
        started_at: Time of the first run in epoch seconds.
        aside: Place to which an older store at the target was moved; "" if there was none.
    """

    move_id: str
    source: tuple[str, str]
    target: tuple[str, str]
    started_at: float
    aside: str = ""


def read_record(home: HermesHome) -> MoveRecord | None:
    """Return the record of the move that this home has begun; None if there is none.

    Raises:
        StorageError: The file can't be read as a record.
    """
    path = _path(home)
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return MoveRecord(**{**fields, "source": tuple(fields["source"]), "target": tuple(fields["target"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise StorageError(
            f"{str(path)!r} can't be read as the record of a move ({exc})",
            "delete it: the move goes on by the marks of the two stores",
        ) from exc


def save_record(home: HermesHome, record: MoveRecord) -> None:
    """Store the record, in the place of that of an earlier move."""
    write_atomic(_path(home), json.dumps(asdict(record), indent=1).encode())


def delete_record(home: HermesHome) -> None:
    """Delete the record, because the move has ended or was given up."""
    with contextlib.suppress(FileNotFoundError):
        _path(home).unlink()
        sync_folder(_path(home).parent)


def _path(home: HermesHome) -> Path:
    return home.path / "migration" / "storage-move.json"
