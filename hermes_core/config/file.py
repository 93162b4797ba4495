"""config.yaml: read with the line of every fault, and written so that comments survive.

The keys are declared in `hermes_core.config.keys`. Blocks of other programs (`terminal:`, `display:`, ...) are left
alone, so that the file can be shared.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome, expanded
from hermes_core.storage.files import PRIVATE_FILE, locked, read_utf8, write_atomic

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Other programs mark values with tags of their own, as Home Assistant does with `!secret`; they stay as written.
_LenientLoader: Any = type("_LenientLoader", (_Loader,), {})
_LenientLoader.add_multi_constructor("!", lambda _loader, _suffix, node: yaml.serialize(node))
_NAME = re.compile(r"[\w-]+")
_MAX_LINE_CHARS = 1 << 20
_STORAGE_URL = "storage.url"
_STORAGE_SCHEMA = "storage.schema"

# Blocks in whose place the file may have the value of one key. Other programs that share it write the model's name so.
_SHORT_KEYS = {"model": "name", "storage": "url"}
# In each form that libpq takes: ROLE:PASSWORD@HOST, a parameter of the address, and words with `=`.
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/@?]*:[^/?]*@|(?:^|[?&\s])(?:ssl)?password\s*=", re.IGNORECASE)
_ALIKE = 0.8
"""The similarity of two names above which one of them is taken for a slip."""
# PyYAML and ruamel let these errors out for a value that only looks like a date or a number: `2024-02-30`, `0x_`.
_CONVERSION_ERRORS = (ValueError, LookupError, AttributeError, RecursionError)


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
    block, *within, name = key.split(".")
    plain = list(value) if isinstance(value, list | tuple) else value
    with _edited(home) as (tree, expected):
        for data, new in ((tree, _with_quotes(plain)), (expected, plain)):
            data[block] = _mapping(block, data.get(block))
            _block_within(data[block], within, key)[name] = new


def _block_within(block: Any, names: Sequence[str], key: str) -> Any:
    """Return the block below `block` that the names lead to, made if it is absent. Raises `ConfigError` for a value."""
    for number, name in enumerate(names):
        below = block.get(name)
        if below is not None and not isinstance(below, dict):
            place = ".".join(key.split(".")[: number + 2])
            raise ConfigError(
                f"{place} is {below!r} and no block, so {key} has no place", f"unset {place} first"
            )
        # A copy, since another part of the file may share the block by an anchor; its change shows as harm.
        block[name] = below if hasattr(below, "ca") else dict(below or {})
        block = block[name]
    return block


def unset_value(home: HermesHome, key: str) -> None:
    """Remove one key from the file, so that its default holds. Does nothing if the file does not have it."""
    if not is_provider_key(key):
        known_key(key)
    elif stored_value(home, key) is None:
        return
    block, *within, name = key.split(".")
    with _edited(home) as (tree, expected):
        for data in (tree, expected):
            if isinstance(held := data.get(block), dict):
                _block_within(held, within, key).pop(name, None)
            elif held is not None and name == _SHORT_KEYS.get(block, "name"):
                del data[block]


def _mapping(name: str, block: Any) -> Any:
    """Return a block that can hold a key. The file may have the value of one key in place of the block."""
    if isinstance(block, dict):
        return block
    return {} if block is None else {_SHORT_KEYS.get(name, "name"): str(block)}


def stored_keys(home: HermesHome) -> frozenset[str]:
    """Return our keys that config.yaml sets; all others have their defaults. Raises `ConfigError`."""
    data = _plain_data(config_text(home)) or {}
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
    value = _plain_data(config_text(home))
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
        with _yaml_errors():
            self._loader = _Loader(text)
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
        with _yaml_errors(line):
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
        with _yaml_errors():
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


@contextlib.contextmanager
def _edited(home: HermesHome) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Hold the lock, and yield the file as a ruamel tree and as plain data. The caller makes one change in both.

    The file is written if the text of the changed tree reads as the changed data.
    """
    path = home.config_yaml
    with locked(path):
        before = read_utf8(path, ConfigError)
        parse_config(before)
        old = before.replace("\r\n", "\n")
        editor, tree = _round_trip(old)
        plain = _plain_data(old) or {}
        # Blocks that share values by an anchor change one by one here, so that the change of another shows below.
        plain = {key: dict(block) if isinstance(block, dict) else block for key, block in plain.items()}
        yield tree, plain
        new = _with_comments(old, _dump(editor, tree, old)) if plain else old
        unharmed = _with_empty_blocks(_plain_data(new) or {}) == _with_empty_blocks(plain)
        parse_config(new)
        if not unharmed:
            raise ConfigError(
                f"{str(path)!r} can't be changed without harming other values", "edit it by hand"
            )
        if new != old:
            text = new.replace("\n", "\r\n") if old != before else new  # Notepad wrote it
            write_atomic(path, text.encode(), _mode_of(path))


def _mode_of(path: Path) -> int:
    """Return the person's own mode of the file. A new file is private: an address in it may hold a password."""
    return path.stat().st_mode & 0o777 if path.exists() else PRIVATE_FILE


def _round_trip(text: str) -> tuple[Any, Any]:
    """Return ruamel's editor with the file's own indentation, and the tree of the file with its comments."""
    from ruamel.yaml import YAML  # only writers pay for it
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = _MAX_LINE_CHARS  # else ruamel would break lines that the person did not
    mapping, offset = _indentation(text)
    editor.indent(mapping=mapping, sequence=offset + 2, offset=offset)
    try:
        tree = editor.load(text)
    except (YAMLError, *_CONVERSION_ERRORS) as exc:
        raise ConfigError(f"config.yaml can't be edited: {_one_line(exc)}", "correct it by hand") from exc
    return editor, CommentedMap() if tree is None else tree


def _indentation(text: str) -> tuple[int, int]:
    """Return the file's own indentation: of a mapping's names, and of a list's dashes."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    mapping = offset = None
    for above, line in itertools.pairwise(lines):
        step = (len(line) - len(line.lstrip())) - (len(above) - len(above.lstrip()))
        if not above.partition(" #")[0].rstrip().endswith(":") or step < 0:
            continue
        if line.lstrip().startswith("- "):
            offset = step if offset is None else offset
        elif step and mapping is None:
            mapping = step
    return mapping or 2, offset or 0


def _dump(editor: Any, tree: Any, old: str) -> str:
    """Return the new text. A file of comments alone has no tree, so the new text goes below them."""
    buffer = io.StringIO()
    editor.dump(tree, buffer)
    # Below a comment, ruamel writes a block that became empty at the beginning of a line, where it is no YAML.
    new = buffer.getvalue().replace("\n{}\n", "\n")
    if _plain_data(old) is not None:
        return new
    return f"{old.rstrip()}\n\n{new}" if old.strip() else new


def _with_empty_blocks(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with each empty block as None, since it may be written in two ways."""
    return {key: None if value == {} else value for key, value in data.items()}


def _with_comments(old: str, new: str) -> str:
    """Return the new text with the comments below the change in their old place.

    To ruamel, comments are the end of the value above them: they vanish with a value that is removed, and stay
    above a key that is added.
    """
    before, after = (text.removesuffix("\n").split("\n") for text in (old, new))
    below: list[str] = []
    while before and after and before[-1].split() == after[-1].split():
        below.insert(0, after.pop())
        before.pop()
    run = [*itertools.takewhile(_is_comment, reversed(before))][::-1]
    added = [*itertools.takewhile(lambda line: not _is_comment(line), reversed(after))][::-1]
    above = after[: len(after) - len(added)]
    if _comments(after) < _comments(before):
        after += run
    elif run and added and above[-len(run) :] == run and (depth := _depth(added[0])):
        own = [*itertools.takewhile(lambda line: not line.strip() or _depth(line) >= depth, run)]
        while own and not own[-1].strip():
            own.pop()
        after = above[: -len(run)] + own + added + run[len(own) :]
    return "\n".join([*after, *below, ""])


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _comments(lines: list[str]) -> int:
    return sum(line.lstrip().startswith("#") for line in lines)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _with_quotes(value: Value) -> Any:
    """Return the value for ruamel to write, in quotes if YAML 1.1 would read a bare `off` or `12` as no string."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, list):
        return [_with_quotes(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_quotes(item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    with contextlib.suppress(yaml.YAMLError):
        if yaml.load(value, _Loader) == value:
            return value
    return DoubleQuotedScalarString(value)


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


@contextlib.contextmanager
def _yaml_errors(line: int = 0) -> Iterator[None]:
    """Turn PyYAML's errors into ours with the line; `line` is the place if PyYAML names none."""
    try:
        yield
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        place = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"config.yaml{place}: {exc.problem or exc.context}", "correct the YAML there"
        ) from exc
    except (yaml.YAMLError, *_CONVERSION_ERRORS) as exc:
        place = f" line {line}" if line else ""
        raise ConfigError(f"config.yaml{place} can't be read: {_one_line(exc)}", "correct the YAML") from exc


def _plain_data(text: str) -> Any:
    """Return what a text of YAML holds, also in blocks of other programs. Raises `ConfigError`."""
    with _yaml_errors():
        return yaml.load(text, _LenientLoader)


def _has_content(node: Any) -> bool:
    return node is not None and node.tag != "tag:yaml.org,2002:null"


def _short(node: Any) -> str:
    return str(node.value)[:40] if isinstance(node, yaml.ScalarNode) else "a list"


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())
