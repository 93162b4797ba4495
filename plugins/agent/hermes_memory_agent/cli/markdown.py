"""Markdown that arrives in pieces, rendered on a terminal while it arrives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown
from rich.segment import Segment
from rich.text import Text

from hermes_core.kit import printable
from hermes_core.safety.scan import invisible_characters

# The colours of the terminal's own theme, which its person can read on its background.
CODE_THEME = "ansi_dark"

REFRESHES_PER_S = 12

# Without HTML: rich leaves tags out, and so would lose the <String> of List<String>.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])

# From this length on, a growing block is parsed again only once a quarter has been added to it. Otherwise each line of a
# long list or table would parse all lines before it.
PARSE_ALWAYS_CHARS = 4096

# Lines as Markdown counts them; `splitlines` would end a line at more characters.
_LINE = re.compile(r"[^\n]*\n|[^\n]+")

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_SCHEME = re.compile("^(?:mailto:|https?://)", re.IGNORECASE)


class MarkdownStream:
    """The Markdown of one answer on a terminal.

    The block that is still arriving (a paragraph, a list, a table, a piece of code) is drawn again as it grows. Blocks
    before it are complete, and are printed once.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._growing = ""
        self._next_parse = 0
        """Number of characters of the growing block from which on it is parsed again."""
        self._live: Live | None = None
        self._is_first = True

    def feed(self, text: str) -> None:
        """Add the next piece of the answer."""
        self._growing += text
        if "\n" in text and len(self._growing) >= self._next_parse:
            # Only whole lines count: "2" is a paragraph until it goes on as "2. milk", a part of the list above it.
            whole = self._growing[: self._growing.rfind("\n") + 1]
            complete = _blocks(whole)[:-1]
            self._growing = self._growing[sum(map(len, complete)) :]
            rest = len(self._growing)
            self._next_parse = rest + rest // 4 if rest > PARSE_ALWAYS_CHARS else 0
            self._print(complete)
        if self._live is None and self._growing.strip():
            self._live = Live(
                console=self._console,
                get_renderable=lambda: _Block(self._growing, below=not self._is_first, is_growing=True),
                refresh_per_second=REFRESHES_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
                transient=True,  # the growing block is perhaps taller than the terminal, and shown in part
            )
            self._live.start()

    def end(self) -> None:
        """Print what has arrived so far."""
        blocks = _blocks(self._growing)
        self._growing = ""
        self._next_parse = 0
        self._print(blocks)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, blocks: Sequence[str]) -> None:
        """Print complete blocks in the place of the growing block."""
        if blocks and self._live is not None:
            self._live.stop()
            self._live = None
        for block in filter(str.strip, blocks):
            self._console.print(_Block(block, below=not self._is_first))
            self._is_first = False


class AnswerMarkdown(Markdown):
    """Markdown of a model: nothing of the text is left out, and its lines end where the model ended them."""

    class _LeftHeading(Heading):
        """A heading on the left, as in the text around it."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield Text("").join([self.text])

    elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "heading_open": _LeftHeading}

    def __init__(self, markup: str) -> None:
        # A link whose address does not show could lead anywhere.
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        self.markup = markup
        self.parsed = _PARSER.parse(markup)
        for token in self.parsed:
            token.content = _harmless(token.content)
            if token.children:
                token.children = _literal(token.children)


class _Block:
    """A block of the answer without empty lines around it.

    Args:
        markup: Its Markdown.
        below: True to separate it from the block above it with an empty line.
        is_growing: True to show only the last lines that fit on the terminal.
    """

    def __init__(self, markup: str, *, below: bool, is_growing: bool = False) -> None:
        self._markup = markup
        self._below = below
        self._is_growing = is_growing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(AnswerMarkdown(self._markup), options.update(height=None), pad=False)
        texts = ["".join(segment.text for segment in line).strip() for line in lines]
        filled = [number for number, text in enumerate(texts) if text]
        lines = lines[filled[0] : filled[-1] + 1] if filled else []
        if self._below:
            lines.insert(0, [])
        if self._is_growing:
            lines = lines[-max(console.height - 1, 1) :]
        for line in lines:
            yield from _without_padding(line)
            yield Segment.line()


def _without_padding(line: list[Segment]) -> list[Segment]:
    """Return a line without the spaces at its end, which rich adds and which a person would copy."""
    for at in reversed(range(len(line))):
        text, style, _ = line[at]
        if style and style.bgcolor:
            return line[: at + 1]
        if text.strip():
            return [*line[:at], Segment(text.rstrip(), style)]
    return []


def _blocks(text: str) -> list[str]:
    """Return the paragraphs, lists and other blocks of Markdown, which together are the whole text."""
    starts = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.map]
    lines = _LINE.findall(text)
    bounds = [0, *starts[1:], len(lines)]
    return ["".join(lines[start:end]) for start, end in pairwise(bounds)]


def _literal(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens of a paragraph with line ends, and with pictures and bare addresses as text."""
    result: list[Token] = []
    for token in tokens:
        token.content = _harmless(token.content)
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.type == "image":
            text = f"![{token.content}]({token.attrs.get('src', '')})"
            token = Token("text", "", 0, content=text)
        result.append(token)
        if token.type == "link_close" and len(result) > 2 and _is_bare_link(result[-3:]):
            result[-3:] = [result[-2]]
    return result


def _is_bare_link(tokens: Sequence[Token]) -> bool:
    """Return True for a link whose label says its address. Part of the address does not: it could name another host."""
    opening, label, _ = tokens
    if opening.type != "link_open" or not label.content:
        return False
    address = str(opening.attrs.get("href"))
    short = _SCHEME.sub("", address)
    return label.content in (address, address.removesuffix("/"), short, short.removesuffix("/"))


def _harmless(text: str) -> str:
    """Replace characters that control the terminal or that hide; Markdown can write them as entities."""
    text = printable(text)
    hidden = set(invisible_characters(text))
    return "".join(_REPLACEMENT if at in hidden else char for at, char in enumerate(text)) if hidden else text
