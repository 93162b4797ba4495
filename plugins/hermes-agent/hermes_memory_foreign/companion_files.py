"""Files that a provider written for Hermes Agent may have beside it: `config_schema.py` and `oauth_flow.py`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from hermes_core import HermesHome
from hermes_core.kit import write_atomic
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.storage.files import ensure_folder, locked
from hermes_memory_foreign.environment import get_hermes_home

logger = logging.getLogger(__name__)

# A person needs minutes to find a password, and an abandoned login must end.
LOGIN_TIMEOUT_S = 300.0
_POLL_S = 0.5
_TYPES = {"bool": "boolean", "number": "number", "secret": "secret"}


def sibling(module: str, name: str) -> ModuleType | None:
    """Return the module `name` beside a provider's module, None if there is none. A failed import is logged."""
    for package in filter(None, (module, module.rpartition(".")[0])):
        path = f"{package}.{name}"
        spec = call_foreign(lambda path=path: importlib.util.find_spec(path))  # type: ignore[misc]
        if isinstance(spec, ForeignError) or spec is None:
            continue
        loaded = call_foreign(lambda path=path: importlib.import_module(path))  # type: ignore[misc]
        if not isinstance(loaded, ForeignError):
            return loaded
        logger.warning("%s can't be imported: %s", path, loaded)
    return None


def settings_panel(module: str) -> Any:
    """Return the `CONFIG_SCHEMA` in the `config_schema.py` beside a provider's module, None without one.

    The file is run by itself, as Hermes Agent does: the package need not be importable.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    path = Path(file).with_name("config_schema.py") if file else None
    if path is None or not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"_hermes_memory_config_schema.{path.parent.name}", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    panel = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up while it is made.
    sys.modules[spec.name] = panel
    failure = call_foreign(lambda: spec.loader.exec_module(panel))  # type: ignore[union-attr]
    if isinstance(failure, ForeignError):
        logger.warning("the settings in %s can't be read: %s", path, failure)
        return None
    return getattr(panel, "CONFIG_SCHEMA", None)


def panel_entries(panel: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of a settings panel in the form of `get_config_schema`."""
    fields = call_foreign(lambda: list(panel.fields))
    for field in [] if isinstance(fields, ForeignError) else fields:
        kind = str(getattr(field, "kind", "text"))
        names = [getattr(field, "env_key", None), *(getattr(field, "env_fallbacks", None) or ())]
        yield {
            "key": getattr(field, "key", ""),
            "description": getattr(field, "description", "") or getattr(field, "label", ""),
            "default": getattr(field, "default", None),
            "type": _TYPES.get(kind, ""),
            "secret": kind == "secret",
            "choices": [option.value for option in getattr(field, "options", ())],
            "env_var": [name for name in names if name],
        }


def save_panel(panel: Any, home: Path, values: Mapping[str, Any]) -> None:
    """Save settings where Hermes Agent keeps those of a panel: `<name>/config.json` in the home."""
    path = home / str(panel.name) / "config.json"
    ensure_folder(path.parent)
    # Another process may save a setting meanwhile.
    with locked(path):
        try:
            stored = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            stored = {}
        merged = {**(stored if isinstance(stored, dict) else {}), **values}
        write_atomic(path, json.dumps(merged, indent=2, ensure_ascii=False).encode() + b"\n")


def login_of(module: str) -> Callable[[], int] | None:
    """Return a function that logs the person in with the `oauth_flow.py` beside a provider, None without one.

    The function returns an exit code.
    """
    flow = sibling(module, "oauth_flow")
    start, status = (
        getattr(flow, name, None) for name in ("start_loopback_flow_background", "get_flow_status")
    )
    if not callable(start) or not callable(status):
        return None
    return lambda: _log_in(start, status)


def _log_in(start: Callable[..., Any], status: Callable[..., Any]) -> int:
    home = HermesHome(get_hermes_home())
    _with_home(start, home)
    click.echo("go on in the browser")
    end = time.monotonic() + LOGIN_TIMEOUT_S
    state: Any = {}
    while time.monotonic() < end:
        state = _with_home(status, home)
        known = state.get("state") if isinstance(state, Mapping) else "error"
        if known == "connected" or (isinstance(state, Mapping) and state.get("connected") is True):
            click.echo("connected")
            return 0
        if known not in ("idle", "pending"):
            break
        time.sleep(_POLL_S)
    detail = state.get("detail") if isinstance(state, Mapping) else ""
    click.echo(f"not connected: {detail or 'the login did not complete'}; run the command again", err=True)
    return 1


def _with_home(function: Callable[..., Any], home: HermesHome) -> Any:
    """Call a function with the home if it takes one: it is a later addition to the contract."""
    takes = "hermes_home" in inspect.signature(function).parameters
    return function(hermes_home=str(home.path)) if takes else function()
