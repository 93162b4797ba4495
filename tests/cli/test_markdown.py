from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hermes_core.cli.markdown import MarkdownStream, _blocks

CONTROL = re.compile(r"\x1b\[[^A-Za-z]*[A-Za-z]")

PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "word ",
                "\n",
                "\n\n",
                "- ",
                "2. ",
                "2",
                "# ",
                "> ",
                "```\n",
                "| a | b |\n",
                "|---|---|\n",
                "    ",
            ),
            *(
                "**",
                "`",
                "[x](http://a.example)",
                "![x](y)",
                "<b>",
                "---\n",
                "===\n",
                "\\",
                "~~",
                "&amp;",
                "夜",
                "[a]: b\n",
            ),
        ]
    )
)


def shown(pieces: list[str], width: int = 60) -> str:
    """What stands on the terminal at the end."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=20, force_terminal=True, highlight=False)
    stream = MarkdownStream(console)
    for piece in pieces:
        stream.feed(piece)
    stream.end()
    # The growing block is erased before the complete block is printed.
    return CONTROL.sub("", re.split(r"\x1b\[\?25h", out.getvalue())[-1])


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("Use List<String>, not <b>.", "Use List<String>, not <b>."),
        ("one\ntwo", "one\ntwo"),
        ("[here](http://a.example/x)", "here (http://a.example/x)"),
        ("<http://a.example/>", "http://a.example/"),
        ("![pixel](http://a.example/p.png)", "![pixel](http://a.example/p.png)"),
        ("# Tea", "Tea"),
        ("- a\n  - b", " • a\n    • b"),
        ("3. c", " 3 c"),
        ("```\nx = 1\n```", " x = 1"),
        ("**bold** and `code`", "bold and code"),
        ("", ""),
    ],
)
def test_a_block_is_shown_without_its_marks_and_nothing_of_it_is_lost(markup: str, text: str) -> None:
    lines = [line.rstrip() for line in shown([markup]).strip("\r\n").splitlines()]
    assert "\n".join(lines) == text


@given(PIECES)
def test_the_blocks_of_a_text_are_the_whole_text(pieces: list[str]) -> None:
    assert "".join(_blocks("".join(pieces))) == "".join(pieces)


@given(PIECES)
def test_an_answer_reads_the_same_however_its_stream_was_cut(pieces: list[str]) -> None:
    out = [io.StringIO(), io.StringIO()]
    for file, parts in zip(out, (pieces, ["".join(pieces)]), strict=True):
        # No terminal: only complete blocks are printed.
        stream = MarkdownStream(Console(file=file, width=60, highlight=False))
        for part in parts:
            stream.feed(part)
        stream.end()
    assert out[0].getvalue() == out[1].getvalue()
