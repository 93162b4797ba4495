"""A change of one value leaves every other byte of a file as it was."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.config import set_value
from hermes_core.config.yaml_text import read_data, with_value, without_value
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome

REAL = (
    "personality:\n"
    "  creative: You are a creative assistant. Think outside the box and offer innovative\n"
    "    solutions.\n"
    '  kawaii: "You are (\\u25D5\\u203F\\u25D5) a kawaii assistant that says many things here and\\\n'
    '    \\ there"\n'
    "memory:\n"
    '  provider: ""\n'
)

# The text around `[...|...]`: what stands there before and after.
ONE_LINE = [
    # Wrapped lines
    REAL.replace('""', '[""|"duck"]'),
    "memory:\n  provider: [one\n    two|duck]  # c\nz: 1\n",
    'memory:\n  provider: ["one\n    two"|"duck"]\nz: 1\n',
    "memory:\n  provider: [|\n    one|duck]\nz: 1\n".replace("[|\n", "[>\n"),
    "memory:\n  provider:\n    # why\n    [one|duck]\n",
    # Quotes
    "'memory':\n    \"provider\" : ['one'|'duck']\n",
    # Line ends, and no line end at all
    'a: "1"\r\nmemory:\r\n  provider: [""|"duck"]  # c\r\nlist:\r\n  - 1\r\n',
    "memory:\n  provider: [one|duck]",
    "a: 1\nmemory:[|\n  provider: duck]",
    "a: 1[|\nmemory:\n  provider: duck]",
    "memory:\n[|  provider: duck\n]  a: |\n    b",
    # Tabs, and blank lines
    "memory:\n  provider: [one|duck]\t# a\ttab\n\n\n\nz:\t1\n\n\n",
    "memory:\n\n\n  a: 1\n[|  provider: duck\n]\n\n\nz: 1\n",
    # Anchors
    "theirs: &d\n  a: 1\nmemory:\n  <<: *d\n[|  provider: duck\n]\nz: *d\n",
    "one: &p one\nmemory:\n  provider: [*p|duck]\n",
    "memory:\n  provider: &p [one|duck]\n",
    "theirs: &d {a: 1}\nmemory: [*d|{<<: *d, provider: duck}]\nz: 1\n",
    # Document markers
    "%YAML 1.1\n--- # c\nmemory:\n  provider: [one|duck]\n...\n",
    "---\na: 1\n[|memory:\n  provider: duck\n]...\n",
    "---\n[|memory:\n  provider: duck\n]",
    # Blocks in braces
    "memory: {a: [[1], |[1], ]provider: [one|duck]} # c\n".replace("[[1], |[1], ]", "[1], "),
    "memory: {[|provider: duck]}\n",
    "memory: {\n  a: 1[|, provider: duck],  # c\n}\n",
    "{memory: {a: 1[|, provider: duck]}}",
    # Empty blocks, comments at the end of a block, indentation
    "memory: # c\n  # provider: x\n[|  provider: duck\n]\n# next\nz: 1\n",
    "memory:[ ~|]\n[|  provider: duck\n]z: 1\n",
    "z:\n    k: 1\nmemory:\n[|    provider: duck\n]",
    "a: |+\n  x\n\n\n[|memory:\n  provider: duck\n]".replace("a: |+", "a: >+"),
    "memory:\n  a: >\n    b\n\n    # no comment\n[|  provider: duck\n]\n# c\n",
    # The last one counts
    "memory:\n  provider: one\n  provider: [two|duck]\n",
]


def _sides(marked: str) -> tuple[str, str]:
    before, after, rest = "", "", marked
    while "[" in rest:
        head, _, rest = rest.partition("[")
        inside, bracket, tail = rest.partition("]")
        old, bar, new = inside.partition("|")
        if bar and bracket:
            before, after, rest = before + head + old, after + head + new, tail
        else:
            before, after = f"{before}{head}[", f"{after}{head}["
    return before + rest, after + rest


@pytest.mark.parametrize("marked", ONE_LINE)
def test_only_the_value_changes(marked: str) -> None:
    before, after = _sides(marked)
    assert with_value(before, ["memory", "provider"], "duck") == after


def test_a_real_file_keeps_every_other_line_also_with_a_byte_order_mark(tmp_path: Path) -> None:
    home = HermesHome(tmp_path)
    home.config_yaml.write_bytes(b"\xef\xbb\xbf" + REAL.encode())
    set_value(home, "memory.provider", "holographic")
    assert home.config_yaml.read_bytes() == b"\xef\xbb\xbf" + REAL.replace('""', '"holographic"').encode()


def test_a_value_that_is_named_again_stays_there() -> None:
    text = "memory:\n  provider: &p one  # c\nother: *p\n"
    assert with_value(text, ["memory", "provider"], "duck") == (
        "memory:\n  provider: duck  # c\nother: &p one\n"
    )
    assert without_value(text, ["memory", "provider"]) == "memory: {}\nother: &p one\n"


def test_an_item_of_a_list_comes_and_goes_on_a_line_of_its_own() -> None:
    text = "identity:\n  owners:\n  - a  # x-y\n  - &b b\n  # the last\n  - c\n  # end\nz: *b\n"
    path = ["identity", "owners"]
    assert with_value(text, path, ["a", "b", "c", "d"]) == text.replace("- c\n", "- c\n  - d\n")
    assert with_value(text, path, ["new", "a", "b", "c"]) == text.replace("  - a", "  - new\n  - a")
    assert with_value(text, path, ["b", "c"]) == text.replace("  - a  # x-y\n", "")
    assert with_value(text, path, ["a", "b", "e"]) == text.replace("- c", "- e")
    whole = "identity:\n  owners:\n    - a\n    - b\n"
    assert with_value(whole, path, []) == "identity:\n  owners: []\n"


def test_a_key_that_is_removed_takes_its_own_lines_along() -> None:
    text = "memory: {a: 1, provider: one, b: 2}\n"
    assert without_value(text, ["memory", "provider"]) == "memory: {a: 1, b: 2}\n"
    assert without_value(text, ["memory", "a"]) == "memory: {provider: one, b: 2}\n"
    assert without_value("memory:\n  a: one\n    two  # c\n  # d\n  b: 1\n", ["memory", "a"]) == (
        "memory:\n  # d\n  b: 1\n"
    )
    twice = "memory:\n  a: 1\n  b: 2\n  a: 3\n"
    assert without_value(twice, ["memory", "a"]) == "memory:\n  b: 2\n"
    assert without_value(text, ["memory", "c"]) == text


def test_a_change_that_needs_another_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"memory\.provider can't be changed .* without harming"):
        without_value("d: &d\n  provider: a\nmemory:\n  <<: *d\n", ["memory", "provider"])
    with pytest.raises(ConfigError, match=r"memory is 'x' and no block, so memory\.provider has no place"):
        with_value("memory: x\n", ["memory", "provider"], "duck")


@pytest.mark.parametrize(
    "value", ["off", "a: b", "a, b", "# c", "- x", "", " x ", "a\nb", "\u25d5 \U0001f600", "12", "~"]
)
@pytest.mark.parametrize(
    "text", ["", "memory: {}\n", "memory:\n  provider: 'x'\n", "memory: {provider: x}\n"]
)
def test_a_string_is_read_as_it_was_given(text: str, value: str) -> None:
    for given_value in (value, [value, {value: [value]}]):
        new = with_value(text, ["memory", "provider"], given_value)
        assert read_data(new)["memory"]["provider"] == given_value
        assert new.count("\n") <= 2


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file in which each part may have any of the forms that people and programs write."""
    values = [
        "x",
        '""',
        "'a b'",
        "one\n    two",
        '"one\n    \\ two"',
        "[a,\n    b]",
        "{k: v}",
        "|\n    long\n",
        ">-\n    x",
    ]
    lines = draw(st.sampled_from(["", "---\n", "# top\n\n\n", "base: &base\n  k: 1\n\n"]))
    for name in draw(st.permutations(["alpha", "memory", "zeta"])):
        lines += f"{name}:{draw(st.sampled_from(['', '  # c', chr(9) + '# c']))}\n"
        for key in draw(st.permutations(["a", "provider", "z"])):
            value = draw(st.sampled_from(values))
            note = (
                draw(st.sampled_from(["", "  # c\td", "\t# d"]))
                if "|" not in value and ">" not in value
                else ""
            )
            lines += f"  {key}: {value}{note}\n"
            lines += draw(st.sampled_from(["", "  # below\n", "\n\n", "# left\n"]))
    lines = lines.rstrip("\n") if draw(st.booleans()) else lines
    return lines.replace("\n", "\r\n") if draw(st.booleans()) else lines


@given(text=files(), is_new=st.booleans())
def test_no_file_changes_beside_the_value(text: str, is_new: bool) -> None:
    new = with_value(text, ["memory", "new" if is_new else "provider"], "duck")
    expected = read_data(text)
    expected["memory"]["new" if is_new else "provider"] = "duck"
    assert read_data(new) == expected
    changes = difflib.SequenceMatcher(None, text.splitlines(), new.splitlines(), autojunk=False).get_opcodes()
    changed = [(kind, last - first) for kind, *_, first, last in changes if kind != "equal"]
    assert changed == [("insert" if is_new else "replace", 1)]
