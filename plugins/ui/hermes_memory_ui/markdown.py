"""Markdown of messages as HTML: no HTML of the text itself, no pictures, and links to the web and to mail only."""

from __future__ import annotations

from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup

from hermes_core.safety.terminal import escape_controls

LINK_SCHEMES = frozenset({"http", "https", "mailto"})

_DIRECTED = frozenset(
    {"paragraph_open", "heading_open", "table_open", "bullet_list_open", "ordered_list_open"}
    | {"blockquote_open", "fence", "code_block"}
)
"""Blocks of text, each of which may be in a script of its own direction. A block has the direction of what is in it."""


def markdown(text: str) -> Markup:
    """Return the HTML of a text that may be Markdown.

    >>> print(markdown("**tea** <b>&"), end="")
    <p dir="auto"><strong>tea</strong> &lt;b&gt;&amp;</p>
    """
    # Escaped again afterwards: the parser turns entities such as &#8238; into characters.
    return Markup(escape_controls(_PARSER.render(escape_controls(text))))


def _may_link(url: str) -> bool:
    """Return True for an address of another machine. To a browser, "http:x" is an address of this page, as "x" is."""
    try:
        address = urlsplit(url)
    except ValueError:
        return False
    return address.scheme.lower() in LINK_SCHEMES and bool(
        address.netloc or address.scheme.lower() == "mailto"
    )


def _fit(state: StateCore) -> None:
    """Fit the tokens into the page: no headings among those of the page, no styles, and links that tell nothing."""
    for token in state.tokens:
        if token.level == 0 and token.type in _DIRECTED:
            token.attrSet("dir", "auto")
        if token.type in ("heading_open", "heading_close"):
            token.tag = "p"
            if token.type == "heading_open":
                token.attrSet("class", "heading")
        token.attrs.pop("style", None)  # the page allows no inline styles; tables have them for the alignment
        for child in token.children or ():
            if child.type == "link_open":
                _close(child)


def _close(link: Token) -> None:
    link.attrSet("rel", "noreferrer noopener")
    link.attrSet("target", "_blank")


def _parser() -> MarkdownIt:
    # Without pictures, which would be loaded from elsewhere: their alternative text becomes a link.
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.enable(["table", "strikethrough"]).disable("image")
    parser.validateLink = _may_link  # type: ignore[method-assign]
    parser.core.ruler.push("fit", _fit)
    return parser


_PARSER = _parser()
