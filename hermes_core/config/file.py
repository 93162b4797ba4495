"""config.yaml: read with the line of every fault, and written so that comments survive.

The keys are declared in `hermes_core.config.keys`. Blocks of other programs (`terminal:`, `display:`, ...) are left
alone, so that the file can be shared.
"""

from __future__ import annotations

import codecs
import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from hermes_core.config.foreign import HERMES_AGENT_KEYS, foreign_sentence, is_of_hermes_agent
from hermes_core.config.keys import (
    BLOCKS,
    KEYS,
    LOAD_PROVIDERS,
    PLATFORMS,
    SEMANTIC,
    STORAGE,
    STORAGE_PASSWORD,
    TOOLSETS,
    Config,
    Value,
    key_of_platform,
)
from hermes_core.config.schema import checked
from hermes_core.config.yaml_text import Loader, read_data, with_value, without_value, yaml_errors
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome, expanded
from hermes_core.storage.files import PRIVATE_FILE, locked, read_utf8, write_atomic

_NAME = re.compile(r"[\w-]+")
_STORAGE_URL = "storage.url"
_STORAGE_SCHEMA = "storage.schema"

# Blocks in whose place the file may have the value of one key. Other programs that share it write the model's name so.
_SHORT_KEYS = {"model": "name", "storage": "url"}
# In each form that libpq takes: ROLE:PASSWORD@HOST, a parameter of the address, and words with `=`.
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/@?]*:[^/?]*@|(?:^|[?&\s])(?:ssl)?password\s*=", re.IGNORECASE)
_ALIKE = 0.8
"""The similarity of two names above which one of them is taken for a slip."""


def load_config(home: HermesHome, environ: Mapping[str, str] | None = None) -> Config:
    """Read config.yaml of this home. A missing file, block or key, or an empty value, means the default.

    Raises `ConfigError` with the line for YAML that can't be read, and for a value of a wrong type or range. An
    unknown key is a sentence in `Config.warnings` and never an error.
    """
    env = os.environ if environ is None else environ
    config = parse_config(read_utf8(home.config_yaml, ConfigError))
    if env.get(STORAGE):
        _refuse_password(env[STORAGE], STORAGE)
        config = replace(config, storage=replace(config.storage, url=env[STORAGE]))
    if home.path.parent.name == "profiles" and _STORAGE_SCHEMA not in config.configured:
        # Else profiles would share their sessions and notes if all of them got one HERMES_STORAGE. The folder tells,
        # because the home of a profile can be given by its path as well.
        schema = _schema_of(home.path.name)
        config = replace(config, storage=replace(config.storage, schema=schema))
    if env.get(SEMANTIC):
        semantic = checked(KEYS["recall.semantic"], env[SEMANTIC], SEMANTIC, strict=True)
        config = replace(config, recall=replace(config.recall, semantic=semantic))
    if LOAD_PROVIDERS not in env:
        return config
    names = tuple(name.strip() for name in env[LOAD_PROVIDERS].split(",") if name.strip())
    return replace(config, providers=replace(config.providers, allow=names))


def _schema_of(profile: str) -> str:
    """Return the default of `storage.schema` for a profile, which no other profile has."""
    name = re.sub(r"[^a-z0-9_]", "_", profile)[:40]
    # A name with such an ending gets one as well, or it could be that of a changed name.
    is_plain = name == profile and not re.search(r"_[0-9a-f]{8}\Z", name)
    ending = (
        "" if is_plain else "_" + hashlib.sha256(profile.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    )
    return f"hermes_{name}{ending}"


def override_config(config: Config, values: Mapping[str, Any]) -> Config:
    """Return the configuration with some keys replaced.

    Args:
        values: The keys as in config.yaml, such as {"recall": {"budget": 800}}.

    Raises:
        ConfigError: A key doesn't exist, or doesn't take its value.
    """
    for block, keys in values.items():
        if not isinstance(keys, Mapping):
            raise ConfigError(
                f"config[{block!r}] must be a mapping, is {keys!r}",
                'give keys as in config.yaml, such as {"recall": {"budget": 800}}',
            )
        for name, value in keys.items():
            key = known_key(f"{block}.{name}")
            _refuse_password(value, key.name)
            converted = checked(key, value, f"config: {key.name}", strict=True)
            stored = tuple(converted) if isinstance(converted, list) else converted
            changed = getattr(config, block).with_value(name, stored)
            configured = config.configured | {key.name}
            config = replace(config, **{block: changed, "configured": configured})
    return config


def _refuse_password(value: object, name: str) -> None:
    """Raise `ConfigError`, without the value, if this is an address of a server with a password in it."""
    if name in (_STORAGE_URL, STORAGE) and isinstance(value, str) and _PASSWORD_IN_ADDRESS.search(value):
        raise ConfigError(
            f"{name} holds a password",
            "write it as postgresql://ROLE@HOST/DATABASE, and put the password into .env: "
            f"{STORAGE_PASSWORD}=...; or into the file of PGPASSFILE",
        )


def parse_config(text: str) -> Config:
    """Return the configuration in the text of a config.yaml, without the environment. Raises `ConfigError`."""
    if not text:
        return Config()
    reading = _ConfigReader(text)
    blocks = {name: reading.block(name, cls) for name, cls in BLOCKS.items()}
    if reading.faults:
        raise ConfigError("; ".join(fault for fault, _ in reading.faults), reading.remedy)
    _refuse_password(blocks["storage"].url, _STORAGE_URL)
    foreign = [foreign_sentence(reading.foreign)] if reading.foreign else []
    return Config(**blocks, warnings=(*reading.warnings, *foreign), configured=frozenset(reading.configured))


def backup_folder(home: HermesHome, config: Config) -> Path:
    """Return the folder of the backups; a relative `backup.folder` lies in the home."""
    return home.path / expanded(config.backup.folder)


def config_text(home: HermesHome) -> str:
    """Return the text of config.yaml, "" if there is none. Raises `ConfigError` if it can't be read."""
    return read_utf8(home.config_yaml, ConfigError)


def save_text(home: HermesHome, text: str, before: str) -> Config:
    """Write the whole of config.yaml and return the configuration in it.

    Args:
        home: The home of the file.
        text: The new text.
        before: The text that was edited. If the file has another one meanwhile, nothing is written.

    Raises:
        ConfigError: The text can't be read as a configuration, or the file was changed meanwhile.
    """
    config, path = parse_config(text), home.config_yaml
    if "\r\n" in before:  # Notepad wrote it
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    with locked(path):
        if config_text(home) != before:
            raise ConfigError(f"{str(path)!r} was changed by another program meanwhile", "edit it again")
        write_atomic(path, text.encode(), _mode_of(path))
    return config


def set_value(home: HermesHome, key: str, value: Value) -> None:
    """Write one key, and leave comments and everything else unchanged. The file is locked, replaced whole, and
    checked.

    Raises `ConfigError` for an unknown key, a value that the key does not take, or a file that can't be read.
    """
    if not is_provider_key(key):
        known = known_key(key)
        _refuse_password(value, key)
        if value is not None:
            checked(known, value, strict=True)
    path = key.split(".")
    plain = list(value) if isinstance(value, list | tuple) else value

    def changed(text: str) -> str:
        held = (read_data(text) or {}).get(path[0])
        short = _SHORT_KEYS.get(path[0])
        if short is None or held is None or isinstance(held, dict):
            return with_value(text, path, plain)
        if path[1:] == [short]:
            return with_value(text, path[:1], plain)
        return with_value(with_value(text, path[:1], {short: str(held)}), path, plain)

    edit_config(home, changed)


def unset_value(home: HermesHome, key: str) -> None:
    """Remove one key from the file, so that its default holds. Does nothing if the file does not have it."""
    if not is_provider_key(key):
        known_key(key)
    path = key.split(".")

    def changed(text: str) -> str:
        held = (read_data(text) or {}).get(path[0])
        is_short = not isinstance(held, dict) and path[1] == _SHORT_KEYS.get(path[0])
        return without_value(text, path[:1] if is_short else path)

    edit_config(home, changed)


def stored_keys(home: HermesHome) -> frozenset[str]:
    """Return our keys that config.yaml sets; all others have their defaults. Raises `ConfigError`."""
    data = read_data(config_text(home)) or {}
    named = {
        f"{block}.{name}" for block, values in data.items() if isinstance(values, dict) for name in values
    }
    return frozenset(named & KEYS.keys())


def is_provider_key(key: str) -> bool:
    """Return True for `memory.NAME.KEY`, a key in the block of a provider. The provider says which keys it reads.

    >>> is_provider_key("memory.mnemosyne.default_scope"), is_provider_key("memory.provider.name")
    (True, False)
    """
    block, *names = key.split(".")
    return (
        block == "memory"
        and len(names) > 1
        and all(map(_NAME.fullmatch, names))
        and f"memory.{names[0]}" not in KEYS
    )


def stored_value(home: HermesHome, key: str) -> Any:
    """Return what config.yaml holds under a dotted name, also in a block of another program; None if nothing.

    Raises `ConfigError` for a file that can't be read.
    """
    value = read_data(config_text(home))
    for name in key.split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict):
            # YAML reads a bare 8080 as a number and a bare `on` as a boolean.
            value = next((below for at, below in value.items() if str(at) == name), None)
        else:
            return None
    return value


class _ConfigReader:
    """One pass over the nodes of a file: the values, `faults` as (sentence, remedy), and `warnings`.

    `foreign` are the keys of Hermes Agent in blocks of ours.
    """

    def __init__(self, text: str) -> None:
        self.faults: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.foreign: list[str] = []
        self.configured: set[str] = set()
        with yaml_errors():
            self._loader = Loader(text)
            root = self._loader.get_single_node()
        self._top = self._pairs(root, "config.yaml") if _has_content(root) else {}
        self._shared = is_of_hermes_agent(self._top.keys())
        for name, (at, node) in self._top.items():
            if key := _misplaced(name, node):
                if self._shared and key.startswith(("model.", "memory.provider")):
                    # Hermes Agent has settings of the model at the top of the file too.
                    self.foreign.append(name)
                    continue
                block, _, last = key.partition(".")
                self.warnings.append(
                    f"config.yaml line {at}: {name!r} has no effect here, write `{last}:` indented below `{block}:`"
                )
            elif name not in BLOCKS:
                self._warn_unknown(name, at, BLOCKS, certain=False)

    @property
    def remedy(self) -> str:
        if len(self.faults) == 1:
            return self.faults[0][1]
        return "correct these lines, or delete them to have the defaults"

    def block(self, name: str, cls: type) -> Any:
        """Return the block's values as an instance of its class."""
        if name not in self._top or not _has_content(self._top[name][1]):
            return cls()
        if name in _SHORT_KEYS and isinstance(self._top[name][1], yaml.ScalarNode):
            if name == "storage":
                self.configured.add(_STORAGE_URL)
            return cls(**{_SHORT_KEYS[name]: str(self._top[name][1].value)})
        pairs = self._pairs(self._top[name][1], name)
        if name == "enabled_toolsets":
            return cls(platforms=self._toolsets(pairs))
        return cls(**self._values(name, pairs))

    def _toolsets(self, pairs: Mapping[str, tuple[int, Any]]) -> dict[str, tuple[str, ...]]:
        """Return the toolsets by platform, also of platforms that only the host knows."""
        toolsets: dict[str, tuple[str, ...]] = {}
        for platform, (at, node) in pairs.items():
            value = self._value(key_of_platform(platform), at, node)
            for toolset in {*(value or ())}.difference(TOOLSETS):
                self._warn_unknown(toolset, at, TOOLSETS, certain=False, what="toolset")
            if value is not None:
                toolsets[platform] = tuple(value)
                if platform not in PLATFORMS:
                    self._warn_unknown(platform, at, PLATFORMS, certain=False, what="platform")
        return toolsets

    def _values(self, name: str, pairs: Mapping[str, tuple[int, Any]]) -> dict[str, Any]:
        """Return the values of the block's keys that are set."""
        values: dict[str, Any] = {}
        # Providers of Hermes Agent keep settings of their own beside the key that chooses them.
        _, chosen = pairs.get("provider", (0, None))
        shared = name == "memory" and _has_content(chosen) and bool(chosen.value)
        for key, (at, node) in pairs.items():
            known = KEYS.get(f"{name}.{key}")
            if known is None:
                # A block of settings below ours belongs to some other program; a single value is more likely a slip.
                if not isinstance(node, yaml.MappingNode):
                    self._unknown_key(name, key, at, certain=not shared)
                continue
            value = self._value(known, at, node)
            if value is not None:
                self.configured.add(known.name)
                values[key] = tuple(value) if isinstance(value, list) else value
        return values

    def _unknown_key(self, block: str, key: str, line: int, *, certain: bool) -> None:
        full = f"{block}.{key}"
        siblings = [known for known in KEYS if known.startswith(f"{block}.")]
        if key in HERMES_AGENT_KEYS.get(block, ()):
            self.foreign.append(full)
        elif certain and self._shared and not difflib.get_close_matches(full, siblings, n=1, cutoff=_ALIKE):
            # Other versions of Hermes Agent have other keys.
            self.foreign.append(full)
        else:
            self._warn_unknown(full, line, siblings, certain=certain)

    def _value(self, key: Field, line: int, node: Any) -> Any:
        with yaml_errors(line):
            value = self._loader.construct_object(node, deep=True)
        if value is None:
            return None
        try:
            return checked(key, value, f"config.yaml line {line}: {key.name}", strict=True)
        except ConfigError as exc:
            # A bare `yes`, 010 or 2024-05-01 is a truth value, a number or a date in YAML.
            is_unquoted = key.type is str and isinstance(node, yaml.ScalarNode)
            example = str(node.value) if is_unquoted else key.default
            name = key.name.rpartition(".")[2]
            advice = (
                "" if example in (None, ()) else f"write for example `{name}: {json.dumps(example)}`, or "
            )
            self.faults.append((exc.message, f"{advice}delete the line"))
            return None

    def _pairs(self, node: Any, where: str) -> dict[str, tuple[int, Any]]:
        """Return line and value node of every key of a mapping. The last one wins if a key is written twice."""
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            label = where if where == "config.yaml" else f"config.yaml line {line}: {where}"
            raise ConfigError(
                f"{label} must hold `name: value` lines, is {_short(node)!r}",
                "see the configuration reference",
            )
        self._warn_twice(node, BLOCKS if where == "config.yaml" else None)
        with yaml_errors():
            self._loader.flatten_mapping(node)
        return {str(key.value): (key.start_mark.line + 1, value) for key, value in node.value}

    def _warn_twice(self, node: Any, ours: Container[str] | None) -> None:
        """Warn of our keys that are written twice. A key that a merge (`<<`) brings along may be overridden
        without a warning.
        """
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines and (ours is None or name in ours):
                self.warnings.append(
                    f"config.yaml line {line}: {name} is written a second time, line {lines[name]} has no effect"
                )
            lines[name] = line

    def _warn_unknown(
        self, name: str, line: int, known: Iterable[str], *, certain: bool, what: str = "key"
    ) -> None:
        close = difflib.get_close_matches(name, list(known), n=1, cutoff=_ALIKE)
        if close:
            self.warnings.append(
                f"config.yaml line {line}: unknown {what} {name!r}, did you mean {close[0]!r}?"
            )
        elif certain:
            self.warnings.append(f"config.yaml line {line}: unknown {what} {name!r} has no effect")


def _misplaced(name: str, node: Any) -> str:
    """Return the key that a name at the top of the file means, "" if it is a block or not ours."""
    if name in BLOCKS or isinstance(node, yaml.MappingNode):
        return ""
    places = (name, *(f"{block}.{name}" for block in ("memory", "identity", "recall", "model")))
    return next((key for key in places if key in KEYS), "")


def edit_config(home: HermesHome, change: Callable[[str], str]) -> None:
    """Write config.yaml with a change of its text, such as `with_value`, under the lock of the file.

    Raises `ConfigError`, and changes nothing, if the text is no configuration before or after the change.
    """
    path = home.config_yaml
    with locked(path):
        before = read_utf8(path, ConfigError)
        parse_config(before)
        after = change(before)
        parse_config(after)
        if after != before:
            has_bom = path.exists() and path.read_bytes().startswith(codecs.BOM_UTF8)
            write_atomic(path, after.encode("utf-8-sig" if has_bom else "utf-8"), _mode_of(path))


def _mode_of(path: Path) -> int:
    """Return the person's own mode of the file. A new file is private: an address in it may hold a password."""
    return path.stat().st_mode & 0o777 if path.exists() else PRIVATE_FILE


def known_key(key: str) -> Field:
    """Return the key of this full name, also for a platform of the host. Raises `ConfigError` with the closest name."""
    if key in KEYS:
        return KEYS[key]
    block, _, platform = key.partition(".")
    alike = difflib.get_close_matches(platform, PLATFORMS, n=1, cutoff=0.8)
    if block == "enabled_toolsets" and platform and "." not in platform and not alike:
        return key_of_platform(platform)
    close = [known for known in KEYS if known.endswith(f".{key}")] or difflib.get_close_matches(
        key, KEYS, n=1
    )
    raise ConfigError(
        f"{key!r} is no key of config.yaml",
        f"did you mean {close[0]!r}?" if close else "hermes-memory config list shows all keys",
    )


def _has_content(node: Any) -> bool:
    return node is not None and node.tag != "tag:yaml.org,2002:null"


def _short(node: Any) -> str:
    return str(node.value)[:40] if isinstance(node, yaml.ScalarNode) else "a list"
