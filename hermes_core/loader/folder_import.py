"""Import of a plugin folder as a package of its own name, with the modules beside it.

Plugins name a module of their folder relatively (`from . import store`) and absolutely (`import store`). An absolute
name is imported as a relative one: the module belongs to this folder alone, so that two plugins with a `store.py` each
get their own, and `sys.path` stays as it is.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

# A package of their own for modules of plugin folders, so that a folder named like an installed package
# hides nothing.
FOLDER_PACKAGE = "_hermes_user_memory"


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
    if _FolderFinder not in sys.meta_path:
        sys.meta_path.insert(0, _FolderFinder)
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
    # Python takes the `__import__` of an `import` from the `__builtins__` of the module.
    vars(module)["__builtins__"] = _Builtins(__import__=_import_of(name, folder, siblings))
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

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module in a plugin folder, None for any other module."""
        if not fullname.startswith(f"{FOLDER_PACKAGE}.") or path is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _SiblingLoader(spec.loader.name, spec.loader.path)
        return spec


class _SiblingLoader(importlib.machinery.SourceFileLoader):
    """Loader of one module of a plugin folder."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source. Cached bytecode is another host's, which may share the folder."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with the `__import__` of its folder, which the functions in it use as well."""
        package = sys.modules[".".join(self.name.split(".")[:2])]
        vars(module)["__builtins__"] = vars(package)["__builtins__"]
        super().exec_module(module)


class _Builtins(dict[str, Any]):
    """The builtins of this process, also those that are added later, with another `__import__`."""

    def __missing__(self, name: str) -> Any:
        return vars(builtins)[name]


def _import_of(package: str, folder: Path, siblings: frozenset[str]) -> Callable[..., ModuleType]:
    """Return an `__import__` that takes the absolute name of a module beside the plugin as that module."""

    @cache
    def is_beside(name: str) -> bool:
        return name in siblings and not _is_installed(name, folder)

    def import_module(
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002  called by this name, as that of Python
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not is_beside(top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or ())
        # `import store.facts` binds the name of the top module.
        return module if fromlist else sys.modules[f"{package}.{top}"]

    return import_module


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
