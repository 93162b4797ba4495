"""The pictures of the documentation: taken by the script, from commands that work, and shown on a page."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.docs.test_docs import PAGES, ROOT, generate
from tests.forked import python


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "docs" / "screenshots.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


screenshots = load_script()
SHOTS = screenshots.SHOTS


def words_of(picture: Path) -> str:
    """What is to be read in a picture."""
    text = " ".join(ElementTree.fromstring(picture.read_text(encoding="utf-8")).itertext())
    return " ".join(html.unescape(text).replace("\xa0", " ").split())


@pytest.mark.slow
def test_the_pictures_can_be_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screenshots, "HERMES", [*python(), "-m", "hermes_core"])
    for path in screenshots.take(SHOTS, tmp_path):
        told, kept = words_of(path), words_of(screenshots.IMAGES / path.name)
        assert str(ROOT) not in told
        assert tempfile.gettempdir() not in told
        # The same lines begin it; figures, dates and what is installed differ from machine to machine.
        begin = re.compile(r"[\d-]+")
        assert begin.sub("", told)[:60] == begin.sub("", kept)[:60]


def test_there_is_a_picture_for_each_shot_and_no_other() -> None:
    assert {path.stem for path in screenshots.IMAGES.glob("*.svg")} == {shot.name for shot in SHOTS}


def test_each_picture_of_the_page_in_the_browser_is_shown_on_a_page() -> None:
    """plugins/ui/tests takes them, in a browser."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = [path.name for path in screenshots.IMAGES.iterdir() if path.suffix != ".svg"]
    assert len(names) >= 7
    assert [name for name in names if f"images/{name})" not in text] == []


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_a_picture_is_shown_on_a_page(shot: object) -> None:
    name = f"images/{shot.name}.svg)"  # type: ignore[attr-defined]
    assert [page for page in PAGES if name in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_a_picture_names_no_folder_of_a_machine_and_loads_nothing(shot: object) -> None:
    text = (screenshots.IMAGES / f"{shot.name}.svg").read_text(encoding="utf-8")  # type: ignore[attr-defined]
    addresses = set(re.findall(r"https?://[^\"'<>\s]+", text)) - {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }
    assert addresses == set()
    assert "@font-face" not in text
    assert not re.search(r"/(home|root|tmp|Users|work)/", text)


def test_the_commands_of_the_pictures_are_documented() -> None:
    known = {path for path, _ in generate.commands()}
    for shot in SHOTS:
        words = [word for word in shot.command.split() if word.replace("-", "").isalpha()]
        assert any(" ".join(words[:end]) in known for end in (2, 3))
