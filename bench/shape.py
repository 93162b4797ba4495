"""Prints the shape of this code beside that of codebases we like to read: `make shape`.

A picture to look at, not a limit. A function's length runs from `def` to its last line, docstring included. The
figures of the others were measured in the same way at the versions named.
"""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = (
    "files",
    "lines",
    "file median/p90/max",
    "function median/p90/max",
    "over 50 lines",
    "broad excepts a kloc",
    "public docstrings",
    "returns typed",
    "comments in 100",
    "test:source",
)
OTHERS = (
    ("pluggy e382e72", "8", "1,736", "88/595/749", "8/31/93", "4.3 %", "4.0", "72 %", "100 %", "9.0", "1.9"),
    ("tox ccb12fc2", "125", "16,490", "92/336/656", "6/24/219", "2.2 %", "1.1", "22 %", "100 %", "8.6", "1.3"),
    ("keyring 38c0401", "28", "2,519", "70/201/300", "5/18/65", "0.5 %", "1.2", "38 %", "25 %", "3.1", "0.2"),
    ("httpx ae1b9f66", "23", "8,827", "248/618/2,019", "9/34/133", "3.1 %", "1.1", "48 %", "100 %", "6.0", "1.0"),
    ("sqlite-utils 56dd097", "10", "11,248", "130/3,986/5,547", "13/74/482", "15.8 %", "0.6", "77 %", "66 %", "3.8", "1.5"),
    ("structlog 025edaf", "21", "7,274", "245/989/1,249", "7/29/182", "2.6 %", "0.3", "81 %", "96 %", "5.1", "1.3"),
    ("datasette 481df7ff", "75", "29,181", "164/959/3,314", "9/49/492", "9.9 %", "1.1", "26 %", "15 %", "3.7", "1.4"),
    ("hermes-agent 0.19.0, providers", "24", "19,806", "544/1,773/3,725", "14/48/444", "9.3 %", "12.2", "53 %", "90 %", "6.6", "0"),
    ("hermes-agent 0.19.0, whole", "793", "643,094", "286/1,800/23,080", "16/66/5,213", "14.9 %", "10.7", "70 %", "88 %", "12.3", "0"),
)  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Shape:
    """What was counted in some files: lengths in lines, shares between 0 and 1."""

    files: list[int]
    functions: list[int]
    broad: int
    documented: float
    typed: float
    comments: int

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(self.files)

    def cells(self, tests: int) -> list[str]:
        """The row of the table; `tests` is the number of lines of its tests."""
        kilo = self.lines / 1000 or 1
        over = sum(length > 50 for length in self.functions) / (len(self.functions) or 1)
        return [
            f"{len(self.files)}",
            f"{self.lines:,}",
            spread(self.files),
            spread(self.functions),
            f"{over:.1%}".replace("%", " %"),
            f"{self.broad / kilo:.1f}",
            f"{self.documented:.0%}".replace("%", " %"),
            f"{self.typed:.0%}".replace("%", " %"),
            f"{self.comments / (kilo * 10):.1f}",
            f"{tests / (self.lines or 1):.1f}",
        ]


def spread(lengths: Sequence[int]) -> str:
    """Median, 90th percentile and maximum."""
    if not lengths:
        return "-"
    ordered = sorted(lengths)
    p90 = ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1)))]
    return f"{statistics.median_low(ordered):,}/{p90:,}/{ordered[-1]:,}"


def measure(paths: Iterable[Path]) -> Shape:
    """Count what the table shows in these files."""
    sources = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(source) for source in sources]
    functions = [f for tree in trees for f in ast.walk(tree) if isinstance(f, Function)]
    public = [node for tree in trees for node in public_names(tree)]
    return Shape(
        files=[len(source.splitlines()) for source in sources if source.strip()],
        functions=[(f.end_lineno or f.lineno) - f.lineno + 1 for f in functions],
        broad=sum(is_broad(node) for tree in trees for node in ast.walk(tree)),
        documented=share(bool(ast.get_docstring(node)) for node in public),
        typed=share(f.returns is not None for f in functions),
        comments=sum(count_comments(source) for source in sources),
    )


def public_names(tree: ast.Module) -> Iterator[ast.ClassDef | Function]:
    """Classes and functions of the module, and methods of its public classes, without a leading underscore."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (n for n in node.body if isinstance(n, Function) and not n.name.startswith("_"))


def is_broad(node: ast.AST) -> bool:
    """Whether this is `except:`, `except Exception` or `except BaseException`."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    return node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
    )


def count_comments(source: str) -> int:
    """Comments outside of strings."""
    return sum(t.type == tokenize.COMMENT for t in tokenize.generate_tokens(io.StringIO(source).readline))


def share(facts: Iterable[bool]) -> float:
    """How much of it is true; 1 when there is nothing."""
    found = list(facts)
    return sum(found) / len(found) if found else 1.0


def python_files(*patterns: str) -> list[Path]:
    """Files of this repository that match."""
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


def longest(paths: Iterable[Path], count: int = 5) -> Iterator[tuple[int, str]]:
    """The longest functions, with where they are."""
    found = [
        ((f.end_lineno or 0) - f.lineno + 1, f"{path.relative_to(ROOT).as_posix()}:{f.lineno} {f.name}")
        for path in paths
        for f in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(f, Function)
    ]
    return iter(sorted(found, reverse=True)[:count])


def main() -> None:
    """Print the table, then our longest functions."""
    core, tests = python_files("hermes_core/**/*.py"), python_files("tests/**/*.py")
    plugins = python_files("plugins/*/hermes_*/**/*.py")
    plugin_tests = python_files("plugins/*/tests/**/*.py")
    table = Table(title="Shape of the code, in lines", header_style="bold")
    for column in ("", *COLUMNS):
        table.add_column(column, justify="right" if column else "left", overflow="fold")
    table.add_row("hermes_core", *measure(core).cells(measure(tests).lines), style="bold")
    table.add_row(
        "our providers", *measure(plugins).cells(measure(plugin_tests).lines), style="bold", end_section=True
    )
    for row in OTHERS:
        table.add_row(*row)
    console = Console(width=None if Console().is_terminal else 170)
    console.print(table)
    for length, where in longest([*core, *plugins]):
        console.print(f"{length:4} {where}", highlight=False)


if __name__ == "__main__":
    main()
