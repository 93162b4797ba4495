"""The direction of imports and the borders between packages, read from the source of every module."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import extending
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "hermes_core"

# A package imports packages of earlier steps, and packages of its own step as long as they form no circle. What it needs
# of a later one is a parameter that memory.py passes in.
STEPS = [
    ("errors", "contract", "packages", "safety", "shell_words", "recall", "stopping", "tracing"),
    ("home",),
    ("storage",),
    ("config", "logs", "loopback"),
    ("loader", "kit", "manager", "outbox"),
    ("curated", "sessions"),
    ("turn_recall", "problems"),
    ("noted", "origins", "selection"),
    ("session_facts",),
    ("recaller",),
    ("lifecycle",),
    ("turn",),
    ("conversation",),
    ("memory",),
    ("aio",),
    ("forget", "health"),
    ("actions", "setup"),
    ("cli",),
    ("__main__",),
]
STEP_OF = {package: step for step, packages in enumerate(STEPS) for package in packages}
# The earlier name of the package hermes-memory-testing, which it imports.
APART = {"testing"}

BROAD = {
    "aio.py",
    "plugins/archive/hermes_memory_archive/schedule.py",
    "manager/call.py",
    "outbox/delivery.py",
    "loader/guard.py",
    "sessions/summaries.py",
    "storage/engine.py",
}
POSIX_NAMES = {
    "os": {
        "fork",
        "killpg",
        "geteuid",
        "getuid",
        "setsid",
        "mkfifo",
        "chown",
        "openpty",
        "sysconf",
        "statvfs",
    },
    "signal": {
        "SIGKILL",
        "SIGHUP",
        "SIGALRM",
        "SIGSTOP",
        "SIGCONT",
        "SIGPIPE",
        "SIGQUIT",
        "pause",
        "alarm",
        "setitimer",
    },
    "socket": {"AF_UNIX"},
}
POSIX_ONLY = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline", "curses"}
POSIX_WORDS = re.compile(rf"\b({'|'.join(POSIX_ONLY.union(*POSIX_NAMES.values()))})\b")
OF_THE_MANAGER = {"threading", "atexit", "multiprocessing", "concurrent", "_thread"}
FOR_PROVIDERS = ("hermes_core.contract", "hermes_core.errors", "hermes_core.kit", "hermes_core.recall")

ADAPTERS = sorted(p for p in ROOT.glob("integrations/*/hermes_*/**/*.py"))
MODULES = sorted(CORE.rglob("*.py"))
TESTS = sorted(
    p
    for folder in ("tests", "plugins/*/tests", "integrations/*/tests")
    for p in ROOT.glob(f"{folder}/**/*.py")
)
PLUGINS = sorted(p for p in ROOT.glob("plugins/*/hermes_*/**/*.py"))
EXTENSIONS = [p for p in PLUGINS if p.relative_to(ROOT).parts[2].startswith("hermes_memory_")]
PROVIDERS = [p for p in PLUGINS if p not in EXTENSIONS]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{'.' * node.level}{node.module or ''}"]
    return []


@cache
def imports(path: Path) -> list[str]:
    return [name for node in ast.walk(tree_of(path)) for name in imported(node)]


def imports_at_top(path: Path) -> Iterator[str]:
    """Imports that happen when the module is loaded, in conditions and try blocks too, in functions not."""
    waiting: list[ast.AST] = list(tree_of(path).body)
    while waiting:
        node = waiting.pop()
        yield from imported(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def package_of(path: Path) -> str:
    return path.relative_to(CORE).parts[0].removesuffix(".py")


def is_allowed(package: str, other: str) -> bool:
    return package in STEP_OF and other in STEP_OF and STEP_OF[other] <= STEP_OF[package]


def wrong_imports(path: Path) -> list[str]:
    """Return the packages that a module imports though they come later in the order."""
    others = {name.split(".")[1] for name in imports(path) if name.startswith("hermes_core.")}
    return sorted(other for other in others if not is_allowed(package_of(path), other))


def test_imports_go_one_way() -> None:
    paths = [p for p in MODULES if package_of(p) not in {*APART, "__init__"}]
    assert {name_of(path): wrong for path in paths if (wrong := wrong_imports(path))} == {}


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {package_of(path) for path in MODULES} - APART - {"__init__"}
    assert packages <= STEP_OF.keys()


def module_of(path: Path) -> str:
    """The dotted name by which a file of the core or of a provider is imported."""
    root = ROOT if CORE in path.parents else ROOT / "plugins" / path.relative_to(ROOT).parts[1]
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def test_no_files_import_each_other_in_a_circle() -> None:
    """Also not by an import in a function or for types alone: a reader goes through the files in one direction."""
    files = {module_of(path): path for path in MODULES + PLUGINS if path.stem != "__init__"}
    graph = {module: set(imports(path)) & files.keys() for module, path in files.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the files of the circle


def test_no_packages_of_one_step_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        others = {name.split(".")[1] for name in imports(path) if name.startswith("hermes_core.")}
        graph.setdefault(package_of(path), set()).update(others - {package_of(path)} - APART)
    TopologicalSorter(
        {package: others for package, others in graph.items() if package not in APART}
    ).prepare()


def test_a_plugin_imports_of_another_one_what_its_package_names_and_only_if_it_depends_on_it() -> None:
    packages = {path.parent.name for path in ROOT.glob("plugins/*/hermes_*/__init__.py")}
    wrong = {}
    for path in PLUGINS:
        _, folder, own = path.relative_to(ROOT).parts[:3]
        project = tomllib.loads((ROOT / "plugins" / folder / "pyproject.toml").read_text(encoding="utf-8"))[
            "project"
        ]
        needed = {re.split(r"[^\w-]", one)[0].replace("-", "_") for one in project["dependencies"]}
        others = {name for name in imports(path) if name.split(".")[0] in packages - {own}}
        if others - needed:
            wrong[name_of(path)] = others - needed
    assert wrong == {}


def test_an_entry_module_imports_public_names_of_the_core_only() -> None:
    """Registering is data: what is behind a command, an importer or an index is imported when it is used."""
    public = {"hermes_core", "hermes_core.contract.extensions"}
    entries = [p for p in EXTENSIONS if p.name == "extension.py"]
    assert {p.relative_to(ROOT).parts[2] for p in entries} == {
        p.relative_to(ROOT).parts[2] for p in EXTENSIONS
    }
    standard = set(sys.stdlib_module_names)
    tops = {
        name_of(p): {n for n in imports_at_top(p) if n.split(".")[0] not in standard} - public
        for p in entries
    }
    assert {path: wrong for path, wrong in tops.items() if wrong} == {}


def test_the_core_names_no_plugin_package() -> None:
    packages = {path.parent.name for path in ROOT.glob("plugins/*/hermes_*/__init__.py")}
    paths = [p for p in MODULES if package_of(p) not in APART]
    assert not [name_of(p) for p in paths if packages & {i.split(".")[0] for i in imports(p)}]


def broad_handlers(path: Path) -> list[int]:
    """Lines of `except:`, `except Exception` and `except BaseException`; what only tidies up is a `finally` or a stack."""
    return [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
        )
    ]


def test_everything_is_caught_only_at_the_named_borders() -> None:
    paths = [p for p in MODULES + PLUGINS if name_of(p).removeprefix("hermes_core/") not in BROAD]
    assert {name_of(path): lines for path in paths if (lines := broad_handlers(path))} == {}


def test_nothing_of_one_system_is_imported_at_the_top() -> None:
    tops = {name_of(p): {name.split(".")[0] for name in imports_at_top(p)} for p in MODULES + PLUGINS}
    assert {path: wrong for path, names in tops.items() if (wrong := names & POSIX_ONLY)} == {}


def posix_names(node: ast.AST) -> set[str]:
    """Return what a part of a test takes from modules or names that Windows lacks."""
    names = {name for inner in ast.walk(node) for name in imported(inner) if name in POSIX_ONLY}
    return names | {
        f"{inner.value.id}.{inner.attr}"
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.value, ast.Name)
        and inner.attr in POSIX_NAMES.get(inner.value.id, ())
    }


def test_each_test_can_be_collected_on_windows_and_is_skipped_there_if_it_needs_posix() -> None:
    wrong = {}
    # Most files have none of the words, and parsing all takes seconds.
    for path in (path for path in TESTS if POSIX_WORDS.search(path.read_text(encoding="utf-8"))):
        skipped = any("pytestmark" in ast.unparse(node) for node in tree_of(path).body)
        for node in tree_of(path).body:
            if not (needs := posix_names(node)):
                continue
            source = ast.unparse(node)
            if isinstance(node, ast.FunctionDef):
                marks = " ".join(map(ast.unparse, node.decorator_list))
                is_guarded = (
                    skipped
                    or not node.name.startswith("test_")
                    or any(word in marks for word in ("posix", "skipif", "terminal"))
                )
            else:
                is_guarded = isinstance(node, ast.If | ast.Try | ast.ClassDef) or "hasattr" in source
            # Names of `os` and `signal` may stand behind a question in the same line, as in `os.name == "nt" or os.geteuid()`.
            if not is_guarded and (needs := {n for n in needs if n in POSIX_ONLY or "os.name" not in source}):
                wrong[f"{name_of(path)}:{node.lineno}"] = needs
    assert wrong == {}


def test_a_provider_imports_public_names_only() -> None:
    assert {
        name_of(path): inner for path in PROVIDERS if (inner := inner_imports(path, *FOR_PROVIDERS))
    } == {}


def inner_names(path: Path) -> set[str]:
    """Return the names of the core that an extension imports beside public and documented ones."""
    names = set()
    for node in ast.walk(tree_of(path)):
        for module in imported(node):
            inner = module.removeprefix("hermes_core.")
            if inner == module or inner.split(".")[0] in extending.PUBLIC:
                continue
            if isinstance(node, ast.ImportFrom):
                wanted = {alias.name for alias in node.names}
                names |= {
                    f"{inner}.{name}" for name in wanted - set(extending.DOCUMENTED.get(inner, "").split())
                }
            else:
                names.add(inner)
    return names


def test_extensions_import_of_the_core_what_extending_lists_and_nothing_else() -> None:
    """A new name is better avoided: by a public one, by a parameter, or by moving it into its only user."""
    used: dict[str, set[str]] = {}
    for path in EXTENSIONS:
        folder = path.relative_to(ROOT).parts[1]
        if names := inner_names(path):
            used.setdefault(folder, set()).update(names)
    assert used == {folder: set(names.split()) for folder, names in extending.NAMES.items()}


def test_the_documented_names_exist_and_the_inner_ones_are_few() -> None:
    modules = {module: import_module(f"hermes_core.{module}") for module in extending.DOCUMENTED}
    names = [(module, name) for module, words in extending.DOCUMENTED.items() for name in words.split()]
    assert [(module, name) for module, name in names if not hasattr(modules[module], name)] == []
    assert len({name for words in extending.NAMES.values() for name in words.split()}) <= 60


def inner_imports(path: Path, *public: str) -> list[str]:
    """Return the modules of the core that a module imports beside the package itself and these parts of it."""
    ours = {name for name in imports(path) if name.startswith("hermes_core.")}
    return sorted(name for name in ours if not name.startswith(public))


def host_matters(path: Path) -> set[str]:
    """Return what a module uses of threads and of the environment."""
    attributes = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    names = {
        alias.name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = OF_THE_MANAGER & {name.split(".")[0] for name in imports(path)}
    return (
        modules
        | attributes & {"os.environ", "os.getenv", "os.putenv"}
        | names & {"environ", "getenv", "putenv"}
    )


def test_a_provider_leaves_threads_and_environment_to_the_host() -> None:
    assert {name_of(path): matters for path in PROVIDERS if (matters := host_matters(path))} == {}


# ------------------------------------------------------------- what an import does

# Names that would say that an import has loaded a client, an array library or a model, and those that cost time.
HEAVY = [
    "numpy",
    "torch",
    "httpx",
    "requests",
    "aiohttp",
    "urllib3",
    "openai",
    "anthropic",
    "mcp",
    "pydantic",
    "rich",
    "click",
    "yaml",
    "sqlite3",
]
WATCHED = """
import sys, threading
opened = []
sys.addaudithook(lambda event, args: opened.append(args) if event in ("open", "socket.connect", "subprocess.Popen") else None)
{statement}
files = [a for a in opened if not str(a[0]).endswith((".py", ".pyc", ".so", ".pyd", ".dll"))
         and "dist-info" not in str(a[0]) and not isinstance(a[0], int)]
print(sorted(set(m.split(".")[0] for m in sys.modules) & set({heavy!r})), threading.active_count(), files)
"""


@pytest.mark.parametrize(
    "statement", ["import hermes_core", "from hermes_core import MemoryProvider, Recall, hookimpl"]
)
def test_an_import_loads_nothing_heavy_starts_no_thread_and_opens_no_file(statement: str) -> None:
    code = WATCHED.format(statement=statement, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] 1 []\n"


def test_the_import_of_the_package_alone_loads_none_of_its_packages() -> None:
    code = "import hermes_core, sys; print(sorted(m for m in sys.modules if m.startswith('hermes')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['hermes_core']\n"


def test_a_new_home_is_opened_without_the_rules_of_the_scan_and_of_the_search(tmp_path: Path) -> None:
    code = (
        "import sys; from hermes_core import open_memory\n"
        f"with open_memory({str(tmp_path)!r}) as memory: memory.start_session(platform='x')\n"
        "names = {'safety.scan', 'safety.threat_rules', 'recall.changes', 'recall.rank', 'recall.dates'}\n"
        "print(sorted(name for name in names if f'hermes_core.{name}' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_adapter_of_a_framework_imports_public_names_only() -> None:
    assert {name_of(path): inner for path in ADAPTERS if (inner := inner_imports(path))} == {}
