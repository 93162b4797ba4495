"""A package made from the template for each kind, installed in an environment of its own. No network."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cookiecutter.main import cookiecutter
from filelock import FileLock

TEMPLATE = Path(__file__).resolve().parents[4] / "cookiecutter-provider"
PROVIDER_KINDS = ("local", "http", "sdk")
KINDS = (*PROVIDER_KINDS, "extension")
INSTALL = ("install", "-q", "--no-index", "--no-deps", "--no-build-isolation")


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that fails says so in the log of its home, which is not to be the person's own."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path_factory.mktemp("hermes")))


@dataclass(frozen=True)
class Made:
    """A package's folder, and the environment that it is installed in."""

    kind: str
    name: str
    folder: Path
    environment: Path

    def run(self, *words: str, **variables: str) -> str:
        """Run a program of the environment in the package's folder; what it said, once it is known to have worked."""
        program = self.environment / ("Scripts" if os.name == "nt" else "bin") / words[0]
        return run([str(program), *words[1:]], self.folder, **variables)


def run(command: list[str], folder: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "PYTEST_"))}
    done = subprocess.run(command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def hermes(made: Made, home: Path, *words: str, **variables: str) -> str:
    """Run `hermes-memory` of the package's environment in a home."""
    start = ("python", "-c", "from hermes_core.cli import main; main()", "--home", str(home))
    return made.run(*start, *words, **variables)


def new_environment(folder: Path) -> Path:
    """An environment that has what this run's environment has, and room of its own to install into."""
    venv.create(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / ("Lib" if os.name == "nt" else f"lib/{version}") / "site-packages"
    # `addsitedir`, so that the host under test is there also when it is editable.
    line = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
    (packages / "outer.pth").write_text(line)
    return folder


@pytest.fixture(scope="session")
def bake(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a package from these answers and return its folder; the person's cookiecutter settings are left alone."""
    folder = tmp_path_factory.mktemp("cookiecutter")
    config = folder / "config.yaml"
    config.write_text(f"replay_dir: '{folder / 'replay'}'\ncookiecutters_dir: '{folder / 'templates'}'\n")

    def make(**answers: str) -> Path:
        output = tmp_path_factory.mktemp("made")
        made = cookiecutter(
            str(TEMPLATE),
            no_input=True,
            extra_context=answers,
            output_dir=str(output),
            config_file=str(config),
        )
        return Path(made)

    return make


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run that all its workers share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "template"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", params=KINDS)
def made(request: pytest.FixtureRequest, bake: Callable[..., Path], shared: Path) -> Made:
    """A package of each kind, installed."""
    return installed(str(request.param), bake, shared)


@pytest.fixture(scope="session", params=PROVIDER_KINDS)
def provider(request: pytest.FixtureRequest, bake: Callable[..., Path], shared: Path) -> Made:
    """A provider of each kind, installed."""
    return installed(str(request.param), bake, shared)


@pytest.fixture(scope="session")
def extension(bake: Callable[..., Path], shared: Path) -> Made:
    """An extension, installed."""
    return installed("extension", bake, shared)


def installed(kind: str, bake: Callable[..., Path], shared: Path) -> Made:
    """Make and install a package as people install it: once, by the worker that needs it first."""
    environment, done = shared / f"environment-{kind}", shared / f"installed-{kind}"
    with FileLock(f"{done}.lock"):
        if not done.exists():
            folder = bake(name=f"{kind}-notes", kind=kind)
            new_environment(environment)
            Made(kind, f"{kind}-notes", folder, environment).run("python", "-m", "pip", *INSTALL, str(folder))
            done.write_text(str(folder))
    return Made(kind, f"{kind}-notes", Path(done.read_text()), environment)
