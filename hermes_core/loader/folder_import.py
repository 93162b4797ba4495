"""Import of a plugin folder as a package of its own name, with the modules beside it.

Plugins name a module of their folder relatively (`from . import store`) and absolutely (`import store`). An absolute
name is compiled as a relative one: the module belongs to this folder alone, so that two plugins with a `store.py` each
get their own, and `sys.path` stays as it is.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

# A package of their own for modules of plugin folders, so that a folder named like an installed package
# hides nothing.
FOLDER_PACKAGE = "_hermes_user_memory"

_IGNORED = "_hermes_submodule"


def import_folder(folder: Path, requires: Sequence[str] = (), reserved: Collection[str] = ()) -> ModuleType:
    """Import a plugin folder as a package and return the package.

    Args:
        requires: Packages that it needs. Such a name is the installed package, even if a file beside the plugin has it.
        reserved: Names of modules of its host. Such a name is the host's module in the same way.
    """
    # A package name of its own for each folder: relative imports work, and two homes don't share modules.
    digest = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
    name = f"{FOLDER_PACKAGE}.{folder.name.replace('.', '_')}__source_{digest}"
    # A second load must give the same classes, else isinstance checks of the provider fail.
    if name in sys.modules:
        return sys.modules[name]
    if not (folder / "__init__.py").is_file():
        raise ImportError(f"{str(folder)!r} is not a Python package")
    # What was imported before an update of the folder must not be found again.
    importlib.invalidate_caches()
    siblings = (
        frozenset(_modules_beside(folder)) - {need.replace("-", "_") for need in requires} - {*reserved}
    )
    _finder.add(name, folder, siblings)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    spec = importlib.util.spec_from_file_location(
        name,
        folder / "__init__.py",
        loader=_SiblingLoader(name, str(folder / "__init__.py")),
        submodule_search_locations=[str(folder)],
    )
    assert spec is not None
    assert spec.loader is not None
    if FOLDER_PACKAGE not in sys.modules:
        sys.modules[FOLDER_PACKAGE] = ModuleType(FOLDER_PACKAGE, "Packages loaded from folders below a home.")
        vars(sys.modules[FOLDER_PACKAGE])["__path__"] = []
    # The module must be in sys.modules while it runs, because its sub-modules import it.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with ExitStack() as undo:
        # A module that failed half-way must not be found by the next import.
        undo.callback(_forget_modules, name)
        spec.loader.exec_module(module)
        undo.pop_all()
    return module


def _forget_modules(package: str) -> None:
    for name in [key for key in sys.modules if key == package or key.startswith(f"{package}.")]:
        del sys.modules[name]


def _modules_beside(folder: Path) -> Iterator[str]:
    """Yield the names of the modules and packages in a plugin folder."""
    for path in folder.iterdir():
        is_package = path.is_dir() and any(path.glob("*.py"))
        if path.stem.isidentifier() and path.stem != "__init__" and (path.suffix == ".py" or is_package):
            yield path.stem


class _FolderFinder:
    """Finder of the modules in plugin folders: it gives them the loader that resolves names of the folder."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[Path, frozenset[str]]] = {}

    def add(self, package: str, folder: Path, siblings: frozenset[str]) -> None:
        """Serve the modules of this package."""
        self._folders[package] = folder, siblings

    def folder_of(self, module: str) -> tuple[str, Path, frozenset[str]]:
        """Return the package of a plugin folder that the module is in, its folder, and the modules beside it."""
        package = ".".join(module.split(".")[:2])
        return package, *self._folders[package]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module in a plugin folder, None for any other module."""
        if not fullname.startswith(f"{FOLDER_PACKAGE}.") or path is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _SiblingLoader(spec.loader.name, spec.loader.path)
        return spec


_finder: Any = _FolderFinder()


class _SiblingLoader(importlib.machinery.SourceFileLoader):
    """Loader of one module of a plugin folder."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Compile the source. Cached bytecode is another host's, which may share the folder."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> CodeType:
        """Compile the source with the absolute names of modules beside the plugin as relative ones."""
        tree = ast.parse(data, path)
        package, folder, siblings = _finder.folder_of(self.name)
        wanted = {name for name in _absolute_names(tree) & siblings if not _is_installed(name, folder)}
        if wanted:
            depth = self.name.count(".") - package.count(".") + self.is_package(self.name)
            tree = ast.fix_missing_locations(_RelativeImports(wanted, depth).visit(tree))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code


def _absolute_names(tree: ast.Module) -> set[str]:
    """Return the top names of all absolute imports in a module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _is_installed(name: str, folder: Path) -> bool:
    """Return True if an absolute name means a module outside of the plugin folders."""
    if name in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    if spec is None:
        return False
    places = [place for place in (*(spec.submodule_search_locations or ()), spec.origin) if place]
    # Another plugin may have put its own folder on sys.path. A module without a place is a view for another host.
    return bool(places) and not any(Path(place).is_relative_to(folder.parent) for place in places)


class _RelativeImports(ast.NodeTransformer):
    """Rewrites absolute imports of some modules as relative imports, `depth` packages up."""

    def __init__(self, names: Collection[str], depth: int) -> None:
        self._names, self._depth = names, depth

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Rewrite `from store import Facts`."""
        if not node.level and node.module and node.module.partition(".")[0] in self._names:
            node.level = self._depth
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.AST]:
        """Rewrite `import store`, `import store.facts` and `import store.facts as facts`."""
        nodes: list[ast.AST] = []
        for alias in node.names:
            top, _, rest = alias.name.partition(".")
            if top not in self._names:
                nodes.append(ast.Import([alias]))
                continue
            parent, _, last = alias.name.rpartition(".")
            if rest:
                # Without `as`, the name that is bound is that of the top module.
                nodes.append(self._from(parent, last, alias.asname or _IGNORED))
            if not rest or not alias.asname:
                nodes.append(self._from("", top, alias.asname or top))
        return [ast.copy_location(new, node) for new in nodes]

    def _from(self, module: str, name: str, bound: str) -> ast.ImportFrom:
        return ast.ImportFrom(module or None, [ast.alias(name, bound)], self._depth)
