"""Run the Python of a page from top to bottom: `python docs/run_page.py docs/how-to/use-in-agno.md`.

It needs the standard library and what the page imports. The home is a temporary folder.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^( *)```python[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def program_of(page: Path) -> str:
    """Return the Python blocks of a page as one program. They keep their lines, so that a traceback names them."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for match in BLOCK.finditer(text):
        first = text[: match.start(2)].count("\n")
        block = match[2].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines)


def main() -> int:
    """Run the pages that are named."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="hermes-page-") as home:
            os.environ["HERMES_HOME"] = home
            exec(compile(program_of(Path(name)), name, "exec", dont_inherit=True), {"__name__": "page"})
        sys.stdout.write(f"{name}: ran to its end\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
