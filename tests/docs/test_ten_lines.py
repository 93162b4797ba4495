from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_ten_lines_recall_in_a_second_process_what_the_first_stored(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"## Embed it in ten lines\n\n```python\n(.*?)```", readme, re.DOTALL)
    assert "recall" not in code.split("# recall")[0]
    program = f"{code}    print(turn.messages[-1]['content'])\n"
    environment = {**os.environ, "HERMES_HOME": str(tmp_path)}
    requests = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert "<memory-context>" not in requests[0]
    assert "assistant: 1 messages" in requests[1]
