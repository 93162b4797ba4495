"""Requirements are compared by version and installed into this environment; programs are looked for, never installed."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from hermes_core import packages
from hermes_core.errors import SetupFailed
from hermes_core.loader.discover import ExternalTool
from hermes_core.loader.requirements import missing_packages
from hermes_core.setup.candidate import missing_tools
from hermes_core.setup.installer import InstallStep, install_command, missing_dependencies

ROOT = Path(__file__).resolve().parents[2]
PLUGGY = importlib.metadata.version("pluggy")


@pytest.mark.parametrize(
    "need",
    ["pluggy", f"pluggy=={PLUGGY}", "Pluggy>=0.1,<99", "absent; python_version < '3'", "click[extra]>=1"],
)
def test_a_requirement_that_is_met_is_not_missing(need: str) -> None:
    assert missing_packages([need]) == []


@pytest.mark.parametrize("need", ["absent-package", "pluggy<0.1", "pluggy==99.*", "not a requirement"])
def test_one_that_is_not_met_is_missing(need: str) -> None:
    assert missing_packages([need]) == [need]


def test_the_installer_is_told_the_interpreter_and_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert install_command(["x>=1,<2"])[:3] == [sys.executable, "-m", "pip"]
    assert install_command(["x>=1,<2"])[-1] == "x>=1,<2"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for pipx")
def test_pipx_serves_its_environment_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipx = tmp_path / "pipx"
    pipx.write_text("#!/bin/sh\n")
    pipx.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pip", None)  # as if it is not installed
    with pytest.raises(SetupFailed, match=r"has no installer; run: .* -m ensurepip"):
        install_command(["x"])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "pipx_metadata.json").write_text("{}")
    step = InstallStep(("x",), ("--no-deps", "x"), "an index")
    assert step.command == [str(pipx), "inject", "--quiet", "--pip-args=--no-deps", tmp_path.name, "x"]


def remedy_of(direct_url: object, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Return the remedy where this program is installed from `direct_url`, and no checkout is around it."""
    monkeypatch.setattr(packages, "__file__", str(folder / "lib/hermes_core/packages.py"))
    monkeypatch.setattr(packages, "direct_url", lambda: direct_url)
    return packages.install_remedy(name)


def test_the_remedy_of_a_missing_package_is_for_the_place_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = f"run: {sys.executable} -m pip install "
    here = remedy_of({"url": ROOT.as_uri(), "dir_info": {}}, tmp_path, monkeypatch, "hermes-memory-ui")
    assert here == f"{pip}{ROOT / 'plugins/ui'}"
    wheel = tmp_path / "wheels" / "hermes_memory_ui-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    core = (wheel.parent / "hermes_memory_core-0.1.0-py3-none-any.whl").as_uri()
    assert remedy_of({"url": core}, tmp_path, monkeypatch, "hermes-memory-ui") == f"{pip}{wheel}"
    vcs = {"url": "https://example.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    address = "git+https://example.org/h.git@c0ffee#subdirectory=plugins/ui"
    assert remedy_of(vcs, tmp_path, monkeypatch, "hermes-memory-ui") == f"{pip}'{address}'"
    for name, command in (("ui", "extensions install ui"), ("mem0", "providers install mem0")):
        sentence = remedy_of({}, tmp_path, monkeypatch, f"hermes-memory-{name}")
        assert sentence.startswith("get its wheel (`make dist` in a clone of this project makes it)")
        assert sentence.endswith(f"config set packages.find_links DIR, and run: hermes-memory {command}")


def test_uv_comes_first_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command(["x"]) == [
        str(uv),
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "x",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for uv")
def test_a_failed_installation_says_why_and_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'no version of absent-package' >&2\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupFailed, match="no version of absent-package; run: "):
        InstallStep(("absent-package",), ("absent-package",), "an index").run()


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for uv")
def test_an_installer_that_lies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexit 0\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupFailed, match="is not found"):
        InstallStep(("absent-package",), ("absent-package",), "an index").run()


def test_programs_are_found_by_their_check_or_their_name() -> None:
    python = ExternalTool("python", check=f"{sys.executable} --version")
    failing = ExternalTool("failing", check=f"{sys.executable} -c 'raise SystemExit(1)'")
    absent = ExternalTool("no-such-program-here", install="brew install it")
    assert missing_tools([python, failing, absent]) == [failing, absent]


def installed(folder: Path, *requires: str) -> str:
    """A distribution that lies in `folder`, with these requirements."""
    about = folder / "boxed_notes-1.0.dist-info"
    about.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: boxed-notes", "Version: 1.0"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    (about / "METADATA").write_text("\n".join(lines))
    return "boxed-notes"


def test_what_an_extra_asks_for_is_told_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = installed(
        tmp_path,
        "pluggy>=1",
        "absent-vectors>=2; extra == 'local'",
        "absent-windows; extra == 'local' and python_version < '3'",
        "absent-server; extra == 'server'",
    )
    assert missing_dependencies([f"{name}[local]"]) == ["absent-vectors>=2"]
    assert missing_dependencies([f"{name}[local,server]"]) == ["absent-vectors>=2", "absent-server"]
    assert missing_dependencies([name]) == missing_dependencies(["not-there-at-all[local]"]) == []


@pytest.mark.parametrize("known", packages.KNOWN_EXTENSIONS.values(), ids=packages.KNOWN_EXTENSIONS)
def test_the_remedy_names_each_package_of_ours_that_one_needs(known: packages.KnownExtension) -> None:
    folder = ROOT / "plugins" / known.distribution.removeprefix("hermes-memory-")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    needs = {re.split(r"[<>=\[]", need)[0] for need in project["dependencies"]} & packages.OWN_PACKAGES
    assert set(known.needs) == needs - {packages.CORE}
