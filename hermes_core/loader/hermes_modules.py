"""Views of the modules that providers written for Hermes Agent import from their host.

A finder at the end of `sys.meta_path` answers for these names, and only when nothing else supplies them: hermes-agent
itself, or a person's own `utils`, `tools` or `agent`, always wins. It is installed with the first such provider and
stays for the life of the process, because many of them import inside functions and threads. Packages stay open: a
folder of the same name that turns up on `sys.path`, such as `plugins/`, is searched too.

Names and signatures are facts of the published contract; what is behind them is ours.
"""

from __future__ import annotations

import datetime
import getpass
import importlib.machinery
import io
import json
import logging
import os
import sys
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from types import ModuleType
from typing import Any

from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from hermes_core.loader import hermes_base, hermes_prompts
from hermes_core.loader.hermes_home import (
    get_hermes_home,
    reset_hermes_home_override,
    set_hermes_home_override,
)
from hermes_core.storage.files import ensure_folder, locked, write_atomic

logger = logging.getLogger(__name__)

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


def load_config() -> dict[str, Any]:
    """config.yaml as a plain mapping, {} when there is none. Raises `ConfigError`."""
    import yaml

    path = _here().config_yaml
    if not path.is_file():
        return {}
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise ConfigError(f"can't read {str(path)!r}: {exc}", "correct the file, then try again") from exc
    return data if isinstance(data, dict) else {}


def _save_config(config: Mapping[str, Any], **_: Any) -> None:
    """Write what differs from the file; what it holds beside that stays, with its comments.

    Providers keep blocks of their own under `memory`, so keys that this project does not know are theirs to write.
    """
    from ruamel.yaml import YAML

    path = _here().config_yaml
    editor = YAML()
    editor.preserve_quotes = True
    with locked(path):
        old = editor.load(path.read_text(encoding="utf-8-sig")) if path.is_file() else None
        tree = old if isinstance(old, MutableMapping) else {}
        _merge(tree, config)
        buffer = io.StringIO()
        editor.dump(tree, buffer)
        write_atomic(path, buffer.getvalue().encode())


def _merge(tree: MutableMapping[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        below = tree.get(key)
        if isinstance(value, Mapping) and isinstance(below, MutableMapping):
            _merge(below, value)
        elif key not in tree or below != value:
            tree[key] = value


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


def _write_env_vars(*given: Any, **_: Any) -> None:
    """The variables are the mapping among the arguments; older hosts passed the path of `.env` before it."""
    for variables in (one for one in given if isinstance(one, Mapping)):
        for name, value in variables.items():
            _save_env_value(str(name), str(value))


def _masked_secret_prompt(prompt: str = "", **_: Any) -> str:
    if not sys.stdin.isatty():
        raise RuntimeError("a secret is asked for and there is no terminal; put it into .env")
    return getpass.getpass(prompt)


# ------------------------------------------------------------------------------------------------- plugins, registry


@dataclass
class PluginManifest:
    """Who a plugin is; unknown facts are left empty."""

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
    """The host's registry of general plugins, of which we have none."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}


class PluginContext:
    """What a plugin is given to register itself with: takes every `register_...` and does nothing with it."""

    def __init__(self, manifest: PluginManifest | None = None, manager: PluginManager | None = None) -> None:
        self.manifest = manifest
        self._manager = manager

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("register_"):
            raise AttributeError(f"this host offers no {name!r} to plugins")
        return lambda *_, **__: logger.info("%s(...) of a general plugin is not used here", name)


_plugin_manager = PluginManager()


class ContextEngine:
    """Base class of context engines, which this host does not run; here so that a package can define one."""

    @property
    def name(self) -> str:
        return ""


def _tool_error(message: object, **extra: Any) -> str:
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def _tool_result(data: Any = None, **fields: Any) -> str:
    return json.dumps(fields if data is None else data, ensure_ascii=False, default=str)


# ----------------------------------------------------------------------------------------------------- small modules

_SKILL_HEAD = "[IMPORTANT: The user has invoked the "
_INSTRUCTION = "User instruction: "


def _instruction_of_skill(content: Any) -> str | None:
    """The person's own words in a message that a skill command expanded; None when there are none."""
    if not isinstance(content, str) or not content.startswith(_SKILL_HEAD):
        return content if isinstance(content, str) else None
    bundle = " skill bundle," in content.partition("\n")[0]
    if bundle:
        _, found, rest = content.partition(f"\n{_INSTRUCTION}")
        text = rest.partition("\n\n[Loaded as part of the ")[0]
    else:
        _, found, rest = content.rpartition(_INSTRUCTION)
        text = rest.partition("\n\n[")[0]
    return text.strip() or None if found else None


def _atomic_json_write(path: str | os.PathLike[str], data: Any, *, mode: int = 0o600, **_: Any) -> None:
    target = Path(path)
    ensure_folder(target.parent)
    write_atomic(target, json.dumps(data, indent=2, ensure_ascii=False, default=str).encode() + b"\n", mode)


def _read_json_or_empty(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _get_timezone() -> datetime.tzinfo | None:
    """The zone of config.yaml (`timezone`), None for the machine's own."""
    name = _cfg_get(load_config(), "timezone", default="")
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
    hermes_base.HOST_BASE_MODULE: {
        "MemoryProvider": hermes_base.HostMemoryProvider,
        "RecallStatus": hermes_base.RecallStatus,
        "INDICATOR_GLYPH": hermes_base.INDICATOR_GLYPH,
        "TRIVIAL_PROMPT_RE": hermes_base.TRIVIAL_PROMPT_RE,
        "is_trivial_prompt": hermes_base.is_trivial_prompt,
        "ctx_bound": hermes_base.ctx_bound,
        "spawn_context_thread": hermes_base.spawn_context_thread,
        "PRE_COMPRESS_CHECKPOINT_API_VERSION": hermes_base.PRE_COMPRESS_CHECKPOINT_API_VERSION,
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
        "load_config": load_config,
        "load_config_readonly": load_config,
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
        "_CANCELLED": hermes_prompts.CANCELLED,
        "_curses_select": hermes_prompts.select,
        "_prompt": hermes_prompts.prompt,
        "_print_cancelled_setup": hermes_prompts.print_cancelled,
        "_write_env_vars": _write_env_vars,
    },
    "hermes_cli.plugins": {
        "get_plugin_manager": lambda: _plugin_manager,
        "PluginManager": PluginManager,
        "PluginContext": PluginContext,
        "PluginManifest": PluginManifest,
        "VALID_HOOKS": frozenset(
            {"pre_tool_call", "post_tool_call", "pre_llm_call", "post_llm_call", "transform_llm_output"}
            | {"on_session_start", "on_session_end", "on_session_finalize", "on_session_reset"}
        ),
    },
    "hermes_cli.profiles": {"get_active_profile_name": lambda: _here().profile},
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
    "tools.registry": {"tool_error": _tool_error, "tool_result": _tool_result},
    "utils": {"atomic_json_write": _atomic_json_write, "read_json_or_empty": _read_json_or_empty},
}
"""What each module offers. Their parent packages are empty and open."""

_PACKAGES = frozenset(
    {".".join(parts[:n]) for parts in (name.split(".") for name in VIEWS) for n in range(1, len(parts))}
)
HOST_NAMES = frozenset(VIEWS) | _PACKAGES
_HOST_PACKAGES = frozenset(
    {name.partition(".")[0] for name in HOST_NAMES}
    | {"cli", "cron", "gateway", "hermes_state", "model_tools", "providers", "run_agent", "toolsets"}
)
"""All that Hermes Agent installs and that its plugins import."""


class _OpenPath:
    """A package's search path that follows its parent: folders that appear later are found, as in a namespace."""

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
        """Let the machinery make a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "A view of hermes_core for providers written for Hermes Agent."
        if module.__name__ in _PACKAGES:
            namespace: MutableMapping[str, Any] = vars(module)
            namespace["__path__"] = _OpenPath(module.__name__)
        vars(module).update(VIEWS.get(module.__name__, {}))


class HostModules:
    """The finder. It sits at the end of `sys.meta_path`, so it is asked only for what nobody else has."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module of ours for a name of the host, None for every other name."""
        del path, target
        if name not in HOST_NAMES:
            return None
        return importlib.machinery.ModuleSpec(name, _ViewLoader(), is_package=name in _PACKAGES)  # type: ignore[arg-type]


_finder = HostModules()


def install_host_modules() -> None:
    """Put the finder at the end of `sys.meta_path`; a second call changes nothing but its place at the end."""
    if sys.meta_path and sys.meta_path[-1] is _finder:
        return
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    sys.meta_path.append(_finder)


def is_host_module(name: str) -> bool:
    """Whether Hermes Agent has such a module, or could have it: also what there is no view of."""
    return name.partition(".")[0] in _HOST_PACKAGES


def hidden_host_module(missing: str) -> str:
    """File of the module that hides `missing`, a name of the host, from the finder; "" when nothing does."""
    owner = sys.modules.get(missing.partition(".")[0])
    return str(getattr(owner, "__file__", None) or "") if missing in HOST_NAMES else ""
