"""Settings of the whole suite: what hypothesis may do, and what a test does not pay for.

Thousands of tests open a memory. Closing it runs the garbage collector over everything the process holds, and opening it
reads the metadata of every installed package and the specifications of all hooks. In a test process that is most of the
work.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import ssl
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pluggy
import pytest
from hypothesis import HealthCheck, settings
from importlib_metadata import PathDistribution

from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.stats import NO_DEADLINES, ManagerConfig
from tests.engine import sitecustomize
from tests.postgres_server import drop_schema, server_url
from tests.rounds import rounds
from tests.temp_folder import DISK, put_temp_folders_in_memory
from tests.windows.sitecustomize import RULES

# What a shell runs in the background ignores Ctrl-C, and so would the programs that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test pays for a model, nor for its thread, but those of search by meaning.
os.environ["HERMES_SEMANTIC"] = "off"

_temp_folder = put_temp_folders_in_memory()

# What hypothesis tries is judged by what it does, never by the clock: a busy machine fails no test. Each run of the suite
# tries the same examples, a fifth of those of `make chaos`, which tries others each time, with `--hypothesis-profile=random`.
settings.register_profile(
    "random", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "same", settings.get_profile("random"), max_examples=rounds(100), derandomize=True, database=None
)
settings.load_profile("same")

# Not defined without need: pytest refuses the name, even of an empty list, below another rootdir.
if os.environ.get("HERMES_TEST_ENGINE") == "postgresql":
    pytest_plugins = ["tests.engine.plugin"]
    sitecustomize.install()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a PostgreSQL server, which all tests of this process share."""
    if os.name == "nt" and "HERMES_TEST_POSTGRES" not in os.environ:
        pytest.skip("a server is started on POSIX systems only; HERMES_TEST_POSTGRES names another one")
    with server_url() as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """The name of a schema of the test's own, which is dropped afterwards."""
    schema = f"test_{uuid.uuid4().hex}"
    yield schema
    drop_schema(postgres_url, schema)


_module_count = 0


def hide_modules_from_collector() -> None:
    """Take collected tests and imported modules out of the sight of the garbage collector."""
    global _module_count
    if len(sys.modules) > _module_count:  # tests import more of them, SDKs among them
        gc.collect()
        gc.freeze()
        _module_count = len(sys.modules)


def read_metadata_once() -> None:
    """Keep the metadata files of the packages of this environment: no test changes them.

    Files of packages in other folders, such as those that tests write, are read anew each time.
    """
    installed = Path(sysconfig.get_path("purelib"))
    read_text = PathDistribution.read_text

    @cache  # asked of hundreds of packages for each memory
    def is_installed(path: Any) -> bool:
        return isinstance(path, Path) and path.parent == installed

    @cache
    def text_of(path: Path, filename: str) -> str | None:
        return read_text(PathDistribution(path), filename)

    def read_text_once(self: PathDistribution, filename: str | os.PathLike[str]) -> str | None:
        return text_of(self._path, str(filename)) if is_installed(self._path) else read_text(self, filename)

    # Of the time that a memory takes to open, the mail parser of the standard library had a tenth.
    parse = PathDistribution.metadata.fget

    @cache
    def metadata_of(path: Path) -> Any:
        return parse(PathDistribution(path))

    def metadata_once(self: PathDistribution) -> Any:
        return metadata_of(self._path) if is_installed(self._path) else parse(self)

    PathDistribution.read_text = read_text_once  # type: ignore[method-assign]
    PathDistribution.metadata = property(metadata_once)  # type: ignore[assignment]


def read_hook_specifications_once() -> None:
    """Keep what pluggy reads of the classes of our hooks: each memory that is opened makes a dozen plugin managers."""

    @cache
    def options_of(project: str, namespace: Any, name: str) -> Any:
        return parse_options(pluggy.PluginManager(project), namespace, name)

    def options_once(self: pluggy.PluginManager, namespace: Any, name: str) -> Any:
        options = options_of(self.project_name, namespace, name)
        return None if options is None else dict(options)

    parse_options = pluggy.PluginManager.parse_hookspec_opts
    pluggy.PluginManager.parse_hookspec_opts = options_once  # type: ignore[method-assign]


def make_ssl_contexts_once() -> None:
    """Share the contexts of clients that never speak TLS here: each reads the certificates of the system, for 15 ms."""
    make = ssl.create_default_context

    @cache
    def context_of(_paths: tuple[str | None, ...], *purpose: Any, **certificates: Any) -> ssl.SSLContext:
        return make(*purpose, **certificates)

    def context_once(*purpose: Any, **certificates: Any) -> ssl.SSLContext:
        # OpenSSL reads these itself.
        paths = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        return context_of(paths, *purpose, **certificates)

    ssl.create_default_context = context_once


def lengthen_deadlines(config: pytest.Config) -> None:
    """Give the hooks that have a few seconds, and the starts of providers, ten times as many unless a test names them.

    Otherwise, a machine that stands still for a second would fail a test: it would have reached the deadline of a hook
    that the test is not about.
    """
    # The conformance kit names all deadlines, and has a factor for them.
    if getattr(config.option, "hermes_deadlines", None) == 1.0:
        config.option.hermes_deadlines = 10.0
    deadlines_of, make = ManagerConfig.deadlines_of, MemoryManager.__init__

    @wraps(deadlines_of)
    def longer(self: ManagerConfig, of_provider: Mapping[str, float] = NO_DEADLINES) -> dict[str, float]:
        deadlines = deadlines_of(self, of_provider)
        named = {"construct", *of_provider, *self.deadlines}
        short = {hook for hook, seconds in deadlines.items() if seconds < 10} - named
        return deadlines | {hook: 10 * deadlines[hook] for hook in short}

    @wraps(make)
    def make_patient(self: MemoryManager, *arguments: Any, start_wait: float = 20.0, **options: Any) -> None:
        make(self, *arguments, start_wait=start_wait, **options)

    ManagerConfig.deadlines_of = longer  # type: ignore[method-assign]
    MemoryManager.__init__ = make_patient  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    """Run once in each process of the suite, and in runs of pytest that tests start."""
    if os.name == "nt" or os.environ.get(RULES) == "windows":
        config.pluginmanager.import_plugin("tests.windows.plugin")
    read_metadata_once()
    read_hook_specifications_once()
    make_ssl_contexts_once()
    lengthen_deadlines(config)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Run at the end of each process of the suite."""
    if _temp_folder is not None:
        shutil.rmtree(_temp_folder, ignore_errors=True)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the test's own: on the disk if the test has the marker `needs_disk`."""
    if request.node.get_closest_marker("needs_disk") is None or DISK not in os.environ:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=os.environ[DISK]) as folder:
        yield Path(folder)


def pytest_collection_finish() -> None:
    """Run before the first test."""
    hide_modules_from_collector()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Run before each test."""
    hide_modules_from_collector()
