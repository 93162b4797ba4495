from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hermes_memory_agent.cli import markdown
from hermes_memory_agent.cli.markdown import PARSE_ALWAYS_CHARS, MarkdownStream, _blocks
from tests.table import table

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


@pytest.mark.parametrize(
    ("label", "address"),
    [
        ("evil", "http://evil.example/x"),
        ("good.example", "http://evil.example/?good.example"),
        ("http://good.example", "http://evil.example/http://good.example"),
        ("http", "http://evil.example/"),
        ("http://evil.example", "http://evil.example/x"),
        ("good.example", "ftp://good.example"),
        ("good.example", "http://mailto:good.example"),
        ("", "http://evil.example/"),
    ],
)
def test_a_label_that_is_part_of_the_address_does_not_hide_it(label: str, address: str) -> None:
    assert shown([f"[{label}]({address})"], width=100).strip() == f"{label} ({address})".strip()


@pytest.mark.parametrize(
    ("label", "address"),
    [
        ("http://a.example/x", "http://a.example/x"),
        ("a.example/x", "http://a.example/x"),
        ("a.example", "https://a.example/"),
        ("https://a.example", "https://a.example/"),
        ("ana@a.example", "mailto:ana@a.example"),
    ],
)
def test_a_label_that_is_the_address_stands_alone(label: str, address: str) -> None:
    assert shown([f"[{label}]({address})"]).strip() == label


@table("entity", ["&#8238;", "&#x200b;", "&#x9b;", "&#x2066;", "&ZeroWidthSpace;", "\u200b"])
@table(
    "markup", ["a{}b", "# a{}b", "**a{}b**", "[a{}b](http://a.example)", "| a{}b |\n|---|\n| c |", "- a{}b"]
)
def test_an_entity_does_not_bring_hidden_characters_to_the_terminal(markup: str, entity: str) -> None:
    text = shown([markup.format(entity)])
    assert "a\N{REPLACEMENT CHARACTER}b" in text
    assert not set(text) & set("\u202e\u200b\x9b\u2066")


def test_joiners_of_correct_spelling_stay() -> None:
    text = "می\u200cخواهم \U0001f469\u200d\U0001f4bb"
    assert shown([text]).strip() == text


LONG_BLOCKS = [
    [f"- item {number}\n" for number in range(600)],
    [f"line {number}\n" for number in range(600)],
    ["```\n", *(f"x = {number}\n\n" for number in range(600)), "```\n"],
    ["| a | b |\n|---|---|\n", *(f"| {number} | c |\n" for number in range(600))],
]


@pytest.mark.parametrize("pieces", LONG_BLOCKS)
def test_a_long_block_is_not_parsed_again_for_each_line(
    pieces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []

    def count(text: str) -> list[str]:
        parsed.append(len(text))
        return _blocks(text)

    monkeypatch.setattr(markdown, "_blocks", count)
    monkeypatch.setattr(markdown, "PARSE_ALWAYS_CHARS", 512)
    stream = MarkdownStream(Console(file=io.StringIO(), width=60, highlight=False))
    for piece in pieces:
        stream.feed(piece)
    long = [length for length in parsed if length > 2 * 512]
    assert 1 <= len(long) < 20
    assert len(parsed) < 200
    stream.end()


def test_what_follows_a_long_block_is_printed_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "PARSE_ALWAYS_CHARS", 512)
    pieces = [*LONG_BLOCKS[0][:200], "\n", "# Tea\n", "\n", "Two\n", *LONG_BLOCKS[2][:10], "```\n", "end"]
    out = [io.StringIO(), io.StringIO()]
    for file, parts in zip(out, (pieces, ["".join(pieces)]), strict=True):
        stream = MarkdownStream(Console(file=file, width=60, highlight=False))
        for part in parts:
            stream.feed(part)
        stream.end()
    assert out[0].getvalue() == out[1].getvalue()
    assert out[0].getvalue().endswith("end\n")


@given(PIECES)
def test_the_blocks_of_a_text_are_the_whole_text(pieces: list[str]) -> None:
    assert "".join(_blocks("".join(pieces))) == "".join(pieces)


@given(PIECES, st.sampled_from([0, PARSE_ALWAYS_CHARS]))
def test_an_answer_reads_the_same_however_its_stream_was_cut(pieces: list[str], always: int) -> None:
    out = [io.StringIO(), io.StringIO()]
    for file, parts in zip(out, (pieces, ["".join(pieces)]), strict=True):
        # No terminal: only complete blocks are printed.
        stream = MarkdownStream(Console(file=file, width=60, highlight=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markdown, "PARSE_ALWAYS_CHARS", always)
            for part in parts:
                stream.feed(part)
        stream.end()
    assert out[0].getvalue() == out[1].getvalue()
