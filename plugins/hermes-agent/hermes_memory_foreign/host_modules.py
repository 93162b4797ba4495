"""Views of the modules that providers written for Hermes Agent import from their host.

A finder at the end of `sys.meta_path` answers for these names, and only if nothing else supplies them: hermes-agent
itself, or a person's own `utils`, `tools` or `agent`, always wins. The finder is installed with the first such provider
and stays for the life of the process, because many providers import inside functions and threads. Packages stay open: a
folder of the same name that appears on `sys.path` later, such as `plugins/`, is searched too.

Names and signatures are facts of the published contract; what is behind them is ours.
"""

from __future__ import annotations

import contextvars
import datetime
import getpass
import importlib
import importlib.machinery
import importlib.util
import json
import logging
import os
import re
import sys
import threading
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from hermes_core import HermesHome
from hermes_core.config import NO_PROVIDER, edit_config, provider_name
from hermes_core.config.yaml_text import read_data, with_value
from hermes_core.errors import ConfigError
from hermes_core.home import FOLDER_PREFIX
from hermes_core.kit import write_atomic
from hermes_core.loader.folder_import import FOLDER_PACKAGE
from hermes_core.storage.files import ensure_folder
from hermes_memory_foreign import (
    host_model,
    host_plugins,
    host_sessions,
    host_tools,
    manifest,
    results,
    turn_authors,
)
from hermes_memory_foreign.environment import (
    get_hermes_home,
    reset_hermes_home_override,
    set_hermes_home_override,
    warn_once,
)
from hermes_memory_foreign.results import MemoryObservation, MemoryPrefetchResult

logger = logging.getLogger(__name__)

# ------------------------------------------------------------------------------------------------ agent.memory_provider

# A method that is defined in this module is the empty default of Hermes Agent's base class, not the
# provider's own.
HOST_BASE_MODULE = "agent.memory_provider"

CORE_MEMORY_PROVIDER_SENTINELS = frozenset(NO_PROVIDER)
INDICATOR_GLYPH = "\N{BRAIN}"
PRE_COMPRESS_CHECKPOINT_API_VERSION = 2

_TRIVIAL_WORDS = (
    "yes|no|ok|okay|sure|thanks|thank you|y|n|yep|nope|yeah|nah|hi|hey|hello|yo|sup|continue|go ahead|do it|proceed"
    "|got it|cool|nice|great|done|next|lgtm|k"
)
TRIVIAL_PROMPT_RE = re.compile(
    rf"\s*(?:(?:{_TRIVIAL_WORDS})(?:[^\w]|_)*|/.*|)\s*\Z", re.IGNORECASE | re.DOTALL
)


def is_trivial_prompt(text: str | None) -> bool:
    """Return True if recall is pointless for this message: empty, a slash command, a greeting or an assent."""
    return text is None or TRIVIAL_PROMPT_RE.match(text) is not None


def is_core_memory_provider(name: str | None) -> bool:
    """Return True if a value of `memory.provider` chooses no provider, so that only the notes remember."""
    return not provider_name(str(name or ""))


@dataclass(frozen=True)
class RecallStatus:
    """A provider's statement about its last prefetch. Count 0 means content without a count."""

    provider_label: str
    count: int
    glyph: str = INDICATOR_GLYPH


class _Defaults:
    """Harmless defaults for the methods that a provider does not override."""

    pre_compress_checkpoint_api_version = 1

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        self.initialize(session_id, **kwargs)  # type: ignore[attr-defined]

    def unavailable_reason(self) -> str:
        return ""

    def recall_status(self) -> RecallStatus | None:
        return None

    def system_prompt_block(self) -> str:
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str | MemoryPrefetchResult:  # noqa: ARG002 - a default of the contract
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None: ...

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
        turn_author: dict[str, Any] | None = None,
    ) -> None: ...

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        raise NotImplementedError(f"Provider {getattr(self, 'name', '?')} does not handle tool {tool_name}")

    def shutdown(self) -> None: ...

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None: ...

    def identity_signature(self) -> dict[str, Any]:
        return {}

    def on_session_end(self, messages: list[dict[str, Any]]) -> None: ...

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None: ...

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:  # noqa: ARG002
        return ""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None: ...

    def get_config_schema(self) -> list[dict[str, Any]]:
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None: ...

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None: ...

    def backup_paths(self) -> list[str]:
        return []


class HostMemoryProvider(_Defaults, ABC):
    """The base class that these providers subclass, with four abstract members."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def is_available(self) -> bool: ...

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None: ...

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]: ...


HostMemoryProvider.__name__ = HostMemoryProvider.__qualname__ = "MemoryProvider"
HostMemoryProvider.__module__ = _Defaults.__module__ = HOST_BASE_MODULE


def ctx_bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs `function` in a copy of the current context."""
    context = contextvars.copy_context()
    return lambda *args, **kwargs: context.copy().run(function, *args, **kwargs)


def spawn_context_thread(
    target: Callable[..., Any],
    *,
    name: str,
    daemon: bool = True,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> threading.Thread:
    """Return a thread, not yet started, that runs `target` in the caller's context."""
    return threading.Thread(
        target=ctx_bound(target), name=name, daemon=daemon, args=args, kwargs=dict(kwargs or {})
    )


# ------------------------------------------------------------------------------------------------------------- home


def _display_hermes_home() -> str:
    home, user = str(get_hermes_home()), str(Path.home())
    return f"~{home.removeprefix(user)}" if home.startswith(user) else home


def _hermes_home_key(home: str | os.PathLike[str] | None = None) -> str:
    return str(Path(home or get_hermes_home()).expanduser().absolute())


def _profile_name_for_home(home: str | os.PathLike[str] | None = None) -> str:
    path = Path(home or get_hermes_home())
    return path.name if path.parent.name == "profiles" else "default"


def _get_hermes_dir(*parts: str) -> Path:
    return get_hermes_home().joinpath(*parts)


def _here() -> HermesHome:
    home = get_hermes_home()
    return HermesHome(home, _profile_name_for_home(home))


# --------------------------------------------------------------------------------------------------- config, secrets


def read_config() -> dict[str, Any]:
    """Return config.yaml as a plain mapping, {} if there is none. Raises `ConfigError`."""
    path = _here().config_yaml
    if not path.is_file():
        return {}
    try:
        data = read_data(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"can't read {str(path)!r}: {exc}", "correct the file, then try again") from exc
    config = data if isinstance(data, dict) else {}
    if _is_folder_selector(chosen := _cfg_get(config, "memory", "provider")):
        # A provider compares the value with its own name.
        config["memory"]["provider"] = chosen.removeprefix(FOLDER_PREFIX)
    return config


def _is_folder_selector(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(FOLDER_PREFIX)


def _save_config(config: Mapping[str, Any], *, merge_existing: bool = True, **options: Any) -> None:
    """Write the values that differ from the file. Everything else in the file stays, with its comments.

    Providers keep blocks of their own under `memory`, so keys that this project does not know are theirs to write.
    """
    host_tools.refuse_options("save_config", {**options, "merge_existing=False": not merge_existing})
    edit_config(_here(), lambda text: _merged(text, config, read_data(text) or {}))


def _merged(text: str, values: Mapping[str, Any], held: Mapping[str, Any], above: Sequence[str] = ()) -> str:
    for key, value in values.items():
        path, below = (*above, str(key)), held.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            text = _merged(text, value, below, path)
        elif key == "provider" and _is_folder_selector(below) and below == f"{FOLDER_PREFIX}{value}":
            continue  # it was read without the prefix
        elif key not in held or below != value:
            text = with_value(text, path, value)
    return text


def _cfg_get(config: Any, *keys: str, default: Any = None) -> Any:
    for key in keys:
        if not isinstance(config, Mapping) or key not in config:
            return default
        config = config[key]
    return default if config is None else config


def _get_secret(name: str, default: str | None = None) -> str | None:
    from hermes_core.config import Credentials

    return Credentials(_here()).get(name) or default


def _save_env_value(name: str, value: str) -> None:
    from hermes_core.config import Credentials

    Credentials(_here()).set(name, value)


def _remove_env_value(name: str) -> None:
    from hermes_core.config import Credentials

    Credentials(_here()).remove(name)


def _write_env_vars(*arguments: Any, **named: Any) -> None:
    """Write the variables of the mapping among the arguments. Older hosts passed the path of `.env` before it.

    A path and a home must be those of the current call: secrets of another home are not this provider's.
    """
    arguments = (*arguments, *named.values())
    for place in (argument for argument in arguments if isinstance(argument, str | os.PathLike)):
        if Path(place).absolute() not in (_here().path.absolute(), _here().env_file.absolute()):
            raise ValueError(f"{str(place)!r} is not the home of this call, {str(_here().path)!r}")
    for variables in (argument for argument in arguments if isinstance(argument, Mapping)):
        for name, value in variables.items():
            _save_env_value(str(name), str(value))


def _masked_secret_prompt(prompt: str = "", **options: Any) -> str:
    host_tools.refuse_options("masked_secret_prompt", options)
    if not sys.stdin.isatty():
        raise RuntimeError("a secret is asked for and there is no terminal; put it into .env")
    return getpass.getpass(prompt)


# ---------------------------------------------------------------------------------------------- hermes_cli.memory_setup

_CANCELLED = -1


def _select(
    title: str, items: Sequence[str | Sequence[str]], default: int = 0, *, cancel_returns: int | None = None
) -> int:
    """Ask for one of the items, each a label or a label with a hint, and return its index.

    If the person cancels, return `cancel_returns`, or `default` if that is None.
    """
    click.echo(title)
    for number, item in enumerate(items):
        label = item if isinstance(item, str) else " ".join(filter(None, item))
        click.echo(f"  {number}  {label}")
    last = max(0, len(items) - 1)
    try:
        chosen: int = click.prompt("  number", default=default, type=click.IntRange(0, last))
    except click.Abort:
        return default if cancel_returns is None else cancel_returns
    return chosen


def _prompt(label: str, default: str | None = None, secret: bool = False) -> str:
    """Ask for a text and return it. Enter gives the default, "" if there is none. A secret is not shown."""
    shown = default is not None and not secret
    return str(
        click.prompt(f"  {label}", default=default or "", hide_input=secret, show_default=shown)
    ).strip()


def _print_cancelled() -> None:
    click.echo("cancelled; nothing was saved")


# ------------------------------------------------------------------------------------------------- plugins, registry


@dataclass
class PluginManifest:
    """Facts about a plugin. Unknown ones are empty."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    requires_env: list[Any] = dataclass_field(default_factory=list)
    provides_tools: list[str] = dataclass_field(default_factory=list)
    provides_hooks: list[str] = dataclass_field(default_factory=list)
    source: str = ""
    path: str | None = None
    kind: str = "standalone"
    key: str = ""


class PluginManager:
    """The host's registry of general plugins, which is always empty here."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}


class PluginContext:
    """The object that a plugin registers itself with. It takes every `register_...` and does nothing with it."""

    def __init__(self, manifest: PluginManifest | None = None, manager: PluginManager | None = None) -> None:
        self.manifest = manifest
        self._manager = manager

    @property
    def llm(self) -> host_model.PluginLlm:
        """The person's auxiliary model."""
        return host_model.PluginLlm(getattr(self.manifest, "name", ""))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("register_"):
            raise AttributeError(f"this host offers no {name!r} to plugins")
        return lambda *_, **__: warn_once(
            f"PluginContext.{name}() of a provider has no effect here: only the ctx of register(ctx) counts"
        )


_plugin_manager = PluginManager()


class ContextEngine:
    """Base class of context engines. This host runs none, but a package can define one."""

    @property
    def name(self) -> str:
        return ""


def _tool_error(message: object, **extra: Any) -> str:
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def _tool_result(data: Any = None, **fields: Any) -> str:
    return json.dumps(fields if data is None else data, ensure_ascii=False, default=str)


# ----------------------------------------------------------------------------------------------------- small modules


def _instruction_of_skill(content: Any) -> str | None:
    """Return the person's own words in a message that a skill was put into, None if there are none."""
    from hermes_core.safety.skill_messages import words_beside_skill

    words = words_beside_skill(content) if isinstance(content, str) else None
    if words is None:
        return content if isinstance(content, str) else None
    return words or None


def _atomic_json_write(
    path: str | os.PathLike[str],
    data: Any,
    *,
    indent: int | None = 2,
    mode: int | None = 0o600,
    **options: Any,
) -> None:
    """Write JSON as a whole. `options` are those of `json.dumps`."""
    target = Path(path)
    ensure_folder(target.parent)
    text = json.dumps(data, **{"ensure_ascii": False, "default": str, **options}, indent=indent)
    write_atomic(target, text.encode() + b"\n", 0o600 if mode is None else mode)


def _read_json_or_empty(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _get_timezone() -> datetime.tzinfo | None:
    """Return the `timezone` of config.yaml, None for the machine's own."""
    name = _cfg_get(read_config(), "timezone", default="")
    try:
        return zoneinfo.ZoneInfo(str(name)) if name else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        logger.warning("%r in config.yaml is no time zone", name)
        return None


def _get_timezone_name() -> str:
    return str(_get_timezone() or "")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).astimezone(_get_timezone())


# ------------------------------------------------------------------------------------ plugins.memory.config_schema


@dataclass(frozen=True)
class ProviderFieldOption:
    """One choice of a field in a settings panel."""

    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
class ProviderField:
    """One field of a settings panel."""

    key: str
    label: str
    kind: str = "text"
    default: Any = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[ProviderFieldOption, ...] = ()
    env_key: str | None = None
    aliases: tuple[str, ...] = ()
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    group: str = ""
    info: str = ""
    scope: str = "host"

    @property
    def is_secret(self) -> bool:
        return self.kind == "secret"

    def allowed_values(self) -> tuple[str, ...]:
        return tuple(option.value for option in self.options)


@dataclass(frozen=True)
class ProviderConfigSchema:
    """A settings panel."""

    name: str
    label: str
    storage: str
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = ()

    def inline_fields(self) -> tuple[ProviderField, ...]:
        return tuple(field for field in self.fields if field.inline)


# -------------------------------------------------------------------------------------------------------- the finder

_CONSTANTS: dict[str, object] = {
    "get_hermes_home": get_hermes_home,
    "set_hermes_home_override": set_hermes_home_override,
    "reset_hermes_home_override": reset_hermes_home_override,
    "display_hermes_home": _display_hermes_home,
    "hermes_home_key": _hermes_home_key,
    "profile_name_for_home": _profile_name_for_home,
    "get_hermes_dir": _get_hermes_dir,
}

VIEWS: dict[str, dict[str, object]] = {
    **turn_authors.VIEWS,
    **host_model.VIEWS,
    **host_sessions.VIEWS,
    **host_tools.VIEWS,
    **host_plugins.VIEWS,
    HOST_BASE_MODULE: {
        "MemoryProvider": HostMemoryProvider,
        "RecallStatus": RecallStatus,
        "MemoryPrefetchResult": MemoryPrefetchResult,
        "MemoryObservation": MemoryObservation,
        "MAX_MEMORY_OBSERVATIONS": results.MAX_OBSERVATIONS,
        "MAX_MEMORY_OBSERVATION_BYTES": results.MAX_OBSERVATION_BYTES,
        "MAX_MEMORY_OBSERVATION_BATCH_BYTES": results.MAX_OBSERVATIONS_BYTES,
        "MAX_MEMORY_OBSERVATION_FIELD_CHARS": results.MAX_OBSERVATION_FIELD_CHARS,
        "CORE_MEMORY_PROVIDER_SENTINELS": CORE_MEMORY_PROVIDER_SENTINELS,
        "is_core_memory_provider": is_core_memory_provider,
        "INDICATOR_GLYPH": INDICATOR_GLYPH,
        "TRIVIAL_PROMPT_RE": TRIVIAL_PROMPT_RE,
        "is_trivial_prompt": is_trivial_prompt,
        "ctx_bound": ctx_bound,
        "spawn_context_thread": spawn_context_thread,
        "PRE_COMPRESS_CHECKPOINT_API_VERSION": PRE_COMPRESS_CHECKPOINT_API_VERSION,
    },
    "agent.secret_scope": {
        "get_secret": _get_secret,
        "current_secret_scope": lambda: None,
        "is_multiplex_active": lambda: False,
    },
    "agent.context_engine": {"ContextEngine": ContextEngine},
    "agent.skill_commands": {"extract_user_instruction_from_skill_message": _instruction_of_skill},
    "hermes_constants": _CONSTANTS,
    "hermes_cli.config": {
        "load_config": read_config,
        "load_config_readonly": read_config,
        "save_config": _save_config,
        "cfg_get": _cfg_get,
        "get_env_value": _get_secret,
        "save_env_value": _save_env_value,
        "remove_env_value": _remove_env_value,
        "get_hermes_home": get_hermes_home,
        "get_config_path": lambda: _here().config_yaml,
        "get_env_path": lambda: _here().env_file,
    },
    "hermes_cli.memory_setup": {
        "_CANCELLED": _CANCELLED,
        "_curses_select": _select,
        "_prompt": _prompt,
        "_print_cancelled_setup": _print_cancelled,
        "_write_env_vars": _write_env_vars,
        "cmd_setup_provider": host_tools.cmd_setup_provider,
    },
    "hermes_cli.plugins": {
        "get_plugin_manager": lambda: _plugin_manager,
        "discover_plugins": host_plugins.discover_plugins,
        "PluginManager": PluginManager,
        "PluginContext": PluginContext,
        "PluginManifest": PluginManifest,
        "VALID_HOOKS": frozenset(
            {"pre_tool_call", "post_tool_call", "pre_llm_call", "post_llm_call", "transform_llm_output"}
            | {"on_session_start", "on_session_end", "on_session_finalize", "on_session_reset"}
        ),
    },
    # The version whose contract is spoken here, which a package compares with what it needs.
    "hermes_cli": {"__version__": manifest.CONTRACT_VERSION, "__release_date__": manifest.CONTRACT_DATE},
    "hermes_cli.profiles": {
        "get_active_profile_name": lambda: _here().profile,
        "_get_default_hermes_home": host_tools.default_hermes_home,
        "list_profiles": host_tools.list_profiles,
        "ProfileInfo": host_tools.ProfileInfo,
    },
    "hermes_cli.curses_ui": {"curses_radiolist": partial(host_tools.curses_radiolist, _select)},
    "hermes_cli.secret_prompt": {"masked_secret_prompt": _masked_secret_prompt},
    "hermes_logging": {"get_logger": logging.getLogger},
    "hermes_time": {"get_timezone": _get_timezone, "get_timezone_name": _get_timezone_name, "now": _now},
    "plugins.memory.config_schema": {
        **{f"KIND_{kind.upper()}": kind for kind in ("text", "select", "secret", "bool", "number", "json")},
        "STORAGE_FLAT_JSON": "flat_json",
        "STORAGE_HONCHO_HOST_BLOCK": "honcho_host_block",
        "ProviderFieldOption": ProviderFieldOption,
        "ProviderField": ProviderField,
        "ProviderConfigSchema": ProviderConfigSchema,
    },
    "tools.registry": {
        "tool_error": _tool_error,
        "tool_result": _tool_result,
        "registry": host_plugins.REGISTRY,
    },
    "utils": {
        "atomic_json_write": _atomic_json_write,
        "read_json_or_empty": _read_json_or_empty,
        "env_var_enabled": host_tools.env_var_enabled,
        "is_truthy_value": host_tools.is_truthy_value,
    },
}
"""The names that each module offers. Their parent packages are empty and open."""

_PACKAGES = frozenset(
    {".".join(parts[:n]) for parts in (name.split(".") for name in VIEWS) for n in range(1, len(parts))}
)
HOST_NAMES = frozenset(VIEWS) | _PACKAGES
# All packages that Hermes Agent installs, with or without a view: a missing one can't be installed with
# pip, so the error message must not say so.
_HOST_PACKAGES = frozenset(
    {name.partition(".")[0] for name in HOST_NAMES}
    | {"cli", "cron", "gateway", "hermes_state", "model_tools", "providers", "run_agent", "toolsets"}
)


class _OpenPath:
    """A package's search path that follows its parent's, so that folders which appear later are found too."""

    def __init__(self, package: str) -> None:
        parent, _, self._folder = package.rpartition(".")
        self._parent = parent

    def __iter__(self) -> Iterator[str]:
        roots = list(getattr(sys.modules.get(self._parent), "__path__", ())) if self._parent else sys.path
        for root in roots:
            path = Path(root or ".", self._folder)
            if path.is_dir():
                yield str(path)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: int) -> str:
        return list(self)[index]


class _ViewLoader:
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None, so that the import system makes a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "A view of hermes_core for providers written for Hermes Agent."
        if module.__name__ in _PACKAGES:
            namespace: MutableMapping[str, Any] = vars(module)
            namespace["__path__"] = _OpenPath(module.__name__)
        vars(module).update(VIEWS.get(module.__name__, {}))


class _FolderLoader:
    """A loader of modules in a plugin folder under the names that they have in Hermes Agent's own tree.

    A package becomes a module without a path that reads the real package, so that the import system asks the finder for
    its sub-modules too, in place of importing them a second time from their files.
    """

    def __init__(self, real_name: str) -> None:
        self._real_name = real_name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None, so that the import system makes a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        real = importlib.import_module(self._real_name)
        if hasattr(real, "__path__"):
            vars(module).update(
                __doc__=real.__doc__, __path__=[], __getattr__=lambda name: getattr(real, name)
            )
        else:
            sys.modules[module.__name__] = real


def _name_in_folder(name: str) -> str:
    """Return the real name of a module that is asked for by its name in Hermes Agent's tree, "" if no folder has it.

    Folders are loaded under a name with a hash of their path. The folder that was loaded last counts.
    """
    for tree in ("plugins.memory.", f"{FOLDER_PACKAGE}."):
        provider, _, rest = name.removeprefix(tree).partition(".")
        if not name.startswith(tree) or "__source_" in provider:
            continue
        start = f"{FOLDER_PACKAGE}.{provider}__source_"
        folders = [key for key in list(sys.modules) if key.startswith(start) and key.count(".") == 1]
        return ".".join(filter(None, (folders[-1], rest))) if folders else ""
    return ""


class HostModules:
    """The finder at the end of `sys.meta_path`. It is asked only for modules that no other finder has."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a view for a name of the host or of a module in a plugin folder, None for every other name."""
        del path, target
        if name in HOST_NAMES:
            return importlib.machinery.ModuleSpec(name, _ViewLoader(), is_package=name in _PACKAGES)  # type: ignore[arg-type]
        real_name = _name_in_folder(name)
        # Asking for the parent of a missing module must end with its name, not with the name of our package.
        if real_name and (real_name in sys.modules or importlib.util.find_spec(real_name)):
            return importlib.machinery.ModuleSpec(name, _FolderLoader(real_name))  # type: ignore[arg-type]
        return None


_finder = HostModules()


def install_host_modules() -> None:
    """Put the finder at the end of `sys.meta_path`, or move it there."""
    if sys.meta_path and sys.meta_path[-1] is _finder:
        return
    # Another finder was appended since; ours must be asked last, so that a real module wins.
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    sys.meta_path.append(_finder)


def is_host_module(name: str) -> bool:
    """Return True if the module belongs to a package of Hermes Agent, with or without a view here."""
    return name.partition(".")[0] in _HOST_PACKAGES


def hidden_host_module(missing: str) -> str:
    """Return the file of the module that hides the host's module `missing` from the finder, "" if none does."""
    owner = sys.modules.get(missing.partition(".")[0])
    return str(getattr(owner, "__file__", None) or "") if missing in HOST_NAMES else ""
