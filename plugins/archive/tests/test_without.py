"""A home and its commands after the package was removed: what it had is named, with the way to get it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_core import open_memory
from hermes_core.home import HermesHome

WITHOUT = "extensions: {block: [archive]}\n"


def test_scheduled_backups_without_it_are_a_problem(hermes: Any, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text(f"{WITHOUT}backup: {{every: 24}}\n")
    with open_memory(hermes_home) as memory:
        (problem,) = memory.problems()
    assert "backup.every is set, and it is of the extension 'archive', which is blocked" in problem
    assert "extensions.block" in problem
    assert problem in hermes("memory", "status", code=3).stderr
    findings = json.loads(hermes("doctor", "--json", code=3).stdout)["findings"]
    assert any(problem.partition(";")[0] in finding["detail"] for finding in findings)


def test_an_export_is_not_imported_as_something_else(
    hermes: Any, hermes_home: HermesHome, tmp_path: Path
) -> None:
    with open_memory(hermes_home) as memory:
        memory.curated.add("memory", "Uses uv.")
    archive = tmp_path / "export.zip"
    hermes("export", archive)
    hermes_home.config_yaml.write_text(WITHOUT)
    result = hermes("import", archive, "--yes", code=1)
    assert result.stderr.count("\n") == 1
    assert "the import of an export is of the extension 'archive', which is blocked" in result.stderr
    assert "extensions.block" in hermes("backup", code=1).stderr
