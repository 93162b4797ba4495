"""Static look at the source of a plugin folder: the evidence that it registers a memory provider, without running it.

`plugins/` of a home also holds plugins of Hermes Agent that are no memory providers. The source decides where it can.
If only a load can decide, its result is recorded until the source or the installed packages change.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.errors import StorageError
from hermes_core.kit import write_atomic
from hermes_core.loader.discover import ProviderCandidate, folder_candidate
from hermes_core.loader.sources import module_path, python_files, read_source

logger = logging.getLogger(__name__)

REGISTER = "register_memory_provider"

# Kinds in plugin.yaml that Hermes Agent loads as something else. A memory provider is "exclusive", or has no kind.
OTHER_KINDS = frozenset({"backend", "platform", "model-provider"})

# Top packages of Hermes Agent itself: none of them brings a provider of memory.
HOST_PACKAGES = frozenset(
    {
        "agent",
        "cron",
        "gateway",
        "hermes_cli",
        "hermes_constants",
        "hermes_logging",
        "hermes_state",
        "hermes_time",
    }
    | {"model_tools", "plugins", "run_agent", "tools", "toolsets", "utils"}
)

_MENTION = re.compile(r"memory_provider|MemoryProvider|hermes_core|get_tool_schemas")
_DUCK_METHODS = frozenset({"is_available", "initialize", "get_tool_schemas"})
_DYNAMIC_CALLS = frozenset({"exec", "eval", "__import__", "import_module", "globals", "getattr", "setattr"})
# A file beside the plugin folders, hidden from their listing.
RECORD = ".not-providers.json"


def plugin_candidate(folder: Path) -> ProviderCandidate | None:
    """Return a plugin folder as a candidate, None if its source shows that it is no memory provider."""
    return folder_candidate(folder, holds_provider=may_register_provider)


def may_register_provider(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Return False if the sources of a plugin folder show that it registers no memory provider.

    Where the sources leave it open, return True unless a load has answered it.
    """
    trees: list[ast.Module] = []
    for file in python_files(folder):
        text = read_source(file)
        entry = file == folder / "__init__.py"
        if not entry and not _MENTION.search(text):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return True  # the load says what is wrong with it
        if _is_evidence(tree):
            return True
        if entry:
            trees.append(tree)
            if any(_is_absent(node, folder) for node in tree.body):
                return True  # the load says what its folder lacks
    kind = str(manifest.get("kind") or "").strip().lower()
    return kind not in OTHER_KINDS and any(map(_is_open, trees))


def mentions_provider(target: str) -> bool:
    """Return True if the source of the module in "module:attribute" speaks of a provider, or can't be read."""
    path = module_path(target.partition(":")[0].strip())
    texts = [read_source(file) for file in python_files(path)] if path else []
    return not texts or any("memory_provider" in text or "MemoryProvider" in text for text in texts)


def calls_register(folder: Path) -> bool:
    """Return True if a source of a plugin folder names `register_memory_provider`, which it may call later."""
    return any(REGISTER in read_source(file) for file in python_files(folder))


def _is_evidence(tree: ast.Module) -> bool:
    """Return True if a module registers a memory provider, or defines a class that is one."""
    native = any(_imports_core(node) for node in ast.walk(tree))
    return native or any(
        (isinstance(node, ast.Attribute) and node.attr == REGISTER)
        # getattr(ctx, "register_memory_provider")
        or (isinstance(node, ast.Constant) and node.value == REGISTER)
        or (isinstance(node, ast.ClassDef) and _is_provider_class(node))
        for node in ast.walk(tree)
    )


def _imports_core(node: ast.AST) -> bool:
    """Return True for an import of this package: nobody but a provider for it has one."""
    names = (
        [alias.name for alias in node.names]
        if isinstance(node, ast.Import)
        else [node.module or ""]
        if isinstance(node, ast.ImportFrom) and not node.level
        else []
    )
    return any(name.partition(".")[0] == "hermes_core" for name in names)


def _is_provider_class(node: ast.ClassDef) -> bool:
    bases = (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases)
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    return any(base.endswith("MemoryProvider") for base in bases) or methods >= _DUCK_METHODS


def _is_absent(node: ast.AST, folder: Path) -> bool:
    """Return True for an import of a module that the plugin folder should have and has not."""
    if not isinstance(node, ast.ImportFrom) or node.level != 1 or not node.module:
        return False
    top = folder / node.module.partition(".")[0]
    return not (top.is_dir() or any(folder.glob(f"{top.name}.*")))


def _is_open(tree: ast.Module) -> bool:
    """Return True if only a load can tell whether an `__init__.py` without evidence yields a provider."""
    sources: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            sources |= {alias.asname or alias.name: node.module or "" for alias in node.names}
        elif isinstance(node, ast.Import):
            sources |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
    register: ast.AST | None = None
    packages: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "register":
            register = node
            packages |= {sources.get(name, "") for name in _receivers(node)}
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "register" for t in node.targets):
            return True
    packages |= {sources[name] for name in ("register", "*") if name in sources}
    # A shim takes the class of an installed package.
    packages |= {
        source
        for name, source in sources.items()
        if name.endswith("Provider") and name != "MemoryProvider" and source
    }
    if any(map(_may_hold_provider, packages - {""})):
        return True
    return register is not None and any(
        isinstance(node, ast.Call) and _is_dynamic(node) for node in ast.walk(register)
    )


def _receivers(register: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the first names of the functions to which `register(ctx)` passes its ctx."""
    first = next(iter([*register.args.posonlyargs, *register.args.args]), None)
    for node in ast.walk(register):
        if not isinstance(node, ast.Call):
            continue
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        if first is not None and any(getattr(value, "id", "") == first.arg for value in values):
            function: ast.AST = node.func
            while isinstance(function, ast.Attribute):
                function = function.value
            yield getattr(function, "id", "")


def _may_hold_provider(module: str) -> bool:
    """Return True if the source of an installed package mentions a memory provider, or can't be read."""
    if module.partition(".")[0] in sys.stdlib_module_names | HOST_PACKAGES:
        return False
    path = module_path(module)
    texts = [read_source(file) for file in python_files(path)] if path else []
    return not texts or any(map(_MENTION.search, texts))


def _is_dynamic(call: ast.Call) -> bool:
    """Return True for a call that may reach any name: `exec`, `getattr` of a name that is not written out."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    constant = len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    return name in _DYNAMIC_CALLS and not (name in ("getattr", "setattr") and constant)


# ------------------------------------------------------------------------------------------------- results of a load


def record_no_provider(folder: Path) -> None:
    """Record that a plugin folder registered no provider when it was loaded, so that it is not listed again."""
    path = folder.parent / RECORD
    try:
        content = {**_records(folder.parent), folder.name: _state(folder)}
        write_atomic(path, json.dumps(content, indent=1).encode())
    except (OSError, StorageError) as exc:
        logger.warning("%s registers no provider, which can't be recorded: %s", folder, exc)


def is_recorded(folder: Path) -> bool:
    """Return True if a load found no provider in this folder, and nothing has changed since."""
    state = _records(folder.parent).get(folder.name)
    return state is not None and state == _state(folder)


def _records(parent: Path) -> dict[str, str]:
    try:
        data = json.loads((parent / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _state(folder: Path) -> str:
    """Return a digest of the folder's sources and of the names of the installed packages."""
    facts = [
        f"{file.relative_to(folder)} {(found := file.stat()).st_size} {found.st_mtime_ns}"
        for file in python_files(folder)
    ]
    for place in sys.path:
        # A package that was missing may have kept the plugin from registering its provider.
        if Path(place).is_dir():
            facts += sorted(
                path.name for path in Path(place).iterdir() if path.suffix in (".dist-info", ".egg-link")
            )
    return hashlib.sha256("\n".join(facts).encode("utf-8", "surrogatepass")).hexdigest()
