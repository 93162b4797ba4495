"""Markdown of messages: what it may become in the page, whatever the text holds."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from hermes_memory_ui.markdown import LINK_SCHEMES, markdown

TAGS = {
    "p",
    "strong",
    "em",
    "s",
    "code",
    "pre",
    "a",
    "ul",
    "ol",
    "li",
    "blockquote",
    "hr",
    "br",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
ATTRIBUTES = {"dir", "class", "href", "rel", "target", "start", "title"}

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<div style='position:fixed'>\n\n<iframe src=//evil.example></iframe>\n\n</div>",
    "<!-- --><svg/onload=alert(1)>",
    "![picture](http://evil.example/x.png)",
    "![picture][1]\n\n[1]: http://evil.example/x.png 'a\" onload=alert(1)'",
    "[link](javascript:alert(1))",
    "[link](JaVaScRiPt&colon;alert(1))",
    "[link](java\tscript:alert(1))",
    "[link](\\x01javascript:alert(1))",
    "[link](data:text/html;base64,PHNjcmlwdD4=)",
    "[link](vbscript:x) <javascript:alert(1)> <data:text/html,x>",
    "[link](file:///etc/passwd) [page](/notes/remove) [page](notes/remove) [other](//evil.example)",
    '[link](http://[::1) [link](<http://e.example/" onclick=alert(1) x=">)',
    "[link][1]\n\n[1]: javascript:alert(1)",
    '```"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
    "`<script>` | `</code><script>`",
    "| a | b |\n|:--|--:|\n| <b> | <script> |",
    "# <script>\n\n> <img src=x>\n\n1. <b>\n- <i>",
    "&lt;script&gt; &#60;script&#62; \x1b[31mred\x07",
    ">" * 3000 + "[" * 3000 + "*a **b " * 1000,
)


class Collector(HTMLParser):
    """Reader of the tags and attributes of a text, as a browser finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_more_than_words_with_a_form(text: str) -> None:
    page = Collector()
    page.feed(markdown(text))
    assert page.tags <= TAGS
    assert {name for name, _ in page.attributes} <= ATTRIBUTES
    links = [value or "" for name, value in page.attributes if name == "href"]
    assert [link for link in links if link.partition(":")[0] not in LINK_SCHEMES] == []
    assert "\x1b" not in markdown(text)


def test_a_message_keeps_its_form() -> None:
    shown = markdown("# Plan\n\n1. *Fly*\n2. `go test`\n\n```python\nprint(1 < 2)\n```\nfirst\nsecond")
    assert '<p dir="auto" class="heading">Plan</p>' in shown
    assert "<em>Fly</em>" in shown
    assert "print(1 &lt; 2)" in shown
    assert "first<br />\nsecond" in shown


def test_a_link_tells_the_other_site_nothing() -> None:
    assert 'rel="noreferrer noopener" target="_blank"' in markdown("[Lisbon](https://lisbon.example)")


def test_each_part_has_the_direction_of_its_own_script() -> None:
    shown = markdown("\u05e9\u05dc\u05d5\u05dd\n\nhello\n\n- \u0645\u0631\u062d\u0628\u0627")
    assert shown.count('<p dir="auto">') == 2
    assert '<ul dir="auto">' in shown  # its marks stand on the side where its lines begin


@pytest.mark.parametrize(
    "link", ["http:x", "http:/session/export", "https:///x", "HTTP:notes", "\x01http://x", "http://[::1"]
)
def test_no_link_leads_into_the_page_itself(link: str) -> None:
    """A browser takes "http:x" for a path of the page that it shows."""
    page = Collector()
    page.feed(markdown(f"[a]({link}) <{link}> [b][1]\n\n[1]: {link}"))
    links = [value or "" for name, value in page.attributes if name == "href"]
    assert [one for one in links if "//" not in one or "///" in one] == []


@pytest.mark.parametrize("entity", ["&#8238;", "&#x202e;", "&rlm;"])
def test_entities_hide_and_turn_no_text(entity: str) -> None:
    shown = markdown(f"a{entity}b `c{entity}` [d](http://x.example 'e{entity}')")
    assert not set("\u202e\u200f") & set(shown)
