"""What came from another program leaves with an export and comes back equal, and comes in once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hermes_core import HermesHome
from tests.outbox_of import wipe_home

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(path.name for path in SAMPLES.iterdir() if path.is_file())


def new(hermes: Callable[..., Result], file: Path) -> int:
    """Import a file, and return the number of turns and memories that were not there."""
    done = json.loads(hermes("import", file, "--json", code=None).stdout)
    return int(done["turns"]) + int(done.get("memories", 0))


@pytest.mark.parametrize("name", FILES)
def test_import_export_wipe_import_gives_the_same_hash(
    name: str,
    hermes: Callable[..., Result],
    hermes_home: HermesHome,
    sample_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    file, archive = sample_file(name), tmp_path / "all.zip"
    for added in (True, False):
        assert bool(new(hermes, file)) == added
    before = json.loads(hermes("export", archive, "--json").stdout)
    wipe_home(hermes_home)
    back = json.loads(hermes("import", archive, "--yes", "--keep-origins", "--json").stdout)
    assert (back["hash"], back["problems"]) == (before["hash"], [])
    assert new(hermes, file) == 0
    assert json.loads(hermes("export", "--dry-run", "--json").stdout)["hash"] == before["hash"]
