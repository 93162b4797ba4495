"""The server answers as its document says, whatever it is sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core import HermesHome
from plugins.http.tests.conftest import new_token, serving_program
from tests.rounds import ALL, rounds

# The schema of a message is open, because the forms of several APIs are taken, and a wrong one is refused with a reason.
EXCLUDED = "positive_data_acceptance"


@pytest.mark.shortened
@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_no_request_crashes_the_server_or_gets_an_answer_without_documentation(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    """Schemathesis: wrong and right requests of each operation, and sequences of them that follow the links."""
    token = new_token(hermes_home, "app:ann", "read", "write", "review", "forget")
    phases = "examples,coverage,fuzzing,stateful" if ALL else "fuzzing,stateful"
    with serving_program(hermes_home, "--rate", "100000", "--max-open-turns", "100000") as (_, root):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{root}/openapi.json"),
                *("--header", f"Authorization: Bearer {token}", "--exclude-checks", EXCLUDED),
                *("--phases", phases, "--max-examples", str(rounds(15))),
                *([] if ALL else ["--generation-deterministic"]),
                *("--no-color", "--suppress-health-check", "all"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
