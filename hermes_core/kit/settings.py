"""Settings of a provider: declared once as fields, typed, and read by one rule of precedence.

A value comes from the first of these places that has one: the caller's overrides; the environment or `.env`, for a
field that names a variable; `$HERMES_HOME/<name>.json`; the field's default. A secret lives in the environment or
`.env` and nowhere else.

A provider with older keys (`Field.aliases`) also reads the file that Hermes Agent wrote,
`$HERMES_HOME/<name>/config.json`, while there is no `<name>.json`. The first save turns the old file into the new
one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hermes_core.config.credentials import Credentials
from hermes_core.config.schema import checked, did_you_mean, expected
from hermes_core.contract.values import Availability, Field
from hermes_core.errors import ConfigError, StorageError
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.safety.redact import redact
from hermes_core.storage.files import locked, read_utf8, write_atomic

log = logging.getLogger(__name__)

Source = Literal["override", "env", "file", "default"]


class Settings:
    """The values of a provider's fields, as attributes or by name in brackets. Frozen; its `repr` shows no secret."""

    def __init__(
        self,
        name: str,
        fields: Sequence[Field],
        values: Mapping[str, tuple[Any, Source]],
        warnings: Sequence[str] = (),
    ) -> None:
        self._name, self._fields, self.warnings = name, tuple(fields), tuple(warnings)
        self._values = {field: value for field, (value, _) in values.items()}
        self._sources = {field: source for field, (_, source) in values.items()}

    def __getattr__(self, name: str) -> Any:
        if name in (values := self.__dict__.get("_values", {})):
            return values[name]
        raise AttributeError(f"{self.__dict__.get('_name', '')!r} declares no setting {name!r}")

    def __getitem__(self, name: str) -> Any:
        """Return the value of a setting, also if the setting has the name of a method here."""
        return self._values[name]

    def __repr__(self) -> str:
        shown = [
            f"{name}={value if value == '***' else redact(repr(value))}"
            for name, value in self.as_dict().items()
        ]
        return f"Settings({self._name!r}, {', '.join(shown)})"

    def source(self, name: str) -> Source:
        """Return the place that the value of this setting came from."""
        if name not in self._sources:
            raise AttributeError(f"{self._name!r} declares no setting {name!r}")
        return self._sources[name]

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name, for status and setup. A secret that is set shows as "***"."""
        return {f.name: "***" if f.secret and self[f.name] else self[f.name] for f in self._fields}

    @property
    def fingerprint(self) -> str:
        """Short hash of the fields that identify an account, "" if there are none. Rows of the outbox carry it."""
        identity = {f.name: self[f.name] for f in self._fields if f.identity}
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16] if identity else ""

    @property
    def missing(self) -> tuple[Field, ...]:
        """Required fields without a value. A field counts only if the other settings ask for it."""
        return tuple(f for f in self._fields if f.required and self.asks(f) and self[f.name] in (None, ""))

    @property
    def availability(self) -> Availability:
        """Available if nothing required is missing: the answer of `is_available` if nothing else can be wrong."""
        for field in self.missing:
            place = f"set it in {self._name.removeprefix(FOLDER_PREFIX)}.json"
            where = f"set {field.env} in the environment or .env" if field.env else place
            return Availability.no(
                f"{field.name!r} is not set", f"{where} ({field.url})" if field.url else where
            )
        return Availability()

    def asks(self, field: Field) -> bool:
        """Return whether the other settings make this field necessary (`Field.when`)."""
        return all(self._values.get(name) == value for name, value in field.when.items())


def load_settings(
    fields: Sequence[Field],
    home: Path,
    name: str,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    get_secret: Callable[[str], str | None] | None = None,
) -> Settings:
    """Read the settings of a provider.

    Several programs may share one file. Then each has a block under "hosts", whose values win over those beside
    it. Our block is "hermes", for a profile "hermes_<profile>". Unknown keys are left alone, with a warning. A
    list is read as text with commas.

    Args:
        fields: Declarations of the settings.
        home: Home to read from.
        name: Name of the provider, and of its file.
        environ: Environment, by default the process's own.
        overrides: Values that win over all others.
        get_secret: Returns the value of a variable, by default from the environment or `.env`.

    Raises:
        ConfigError: A value has a wrong type, is out of range or none of the choices. The message names file and key.
    """
    path = _file_of(home, name, fields)
    stored = _of_this_host(_read_file(path), home)
    unknown = [key for key in overrides or () if key not in {field.name for field in fields}]
    warnings = [f"unknown setting {key!r} in the overrides; {_nearest(key, fields)}" for key in unknown]
    warnings += _without_effect(stored, fields, path)
    ask = get_secret or Credentials(HermesHome(home), environ).get
    values: dict[str, tuple[Any, Source]] = {}
    source: Source
    for field in fields:
        if overrides and field.name in overrides:
            source, raw, where = "override", overrides[field.name], "the overrides"
        # Before the file: a container or a shell overrides one run without touching the home.
        elif field.env and (variable := ask(field.env)):
            source, raw, where = "env", variable, f"the environment or .env as {field.env}"
        elif not field.secret and (held := _stored(field, stored)) is not None:
            source, raw, where = "file", held, str(path)
        else:
            source, raw, where = "default", field.default, "its declaration"
        value = None if raw is None else read_value(field, raw, where, clamp=field.clamp)
        is_moved = field.clamp and value is not None and value in (field.minimum, field.maximum)
        if is_moved and float(raw) != value:
            warnings.append(
                f"{field.name!r} in {where} is {raw!r}, so {value:g} is used; write {expected(field)}"
            )
        values[field.name] = value, source
    for warning in warnings:
        log.warning("%s", warning)
    return Settings(name, fields, values, warnings)


def save_settings(fields: Sequence[Field], home: Path, name: str, values: Mapping[str, Any]) -> Path:
    """Write these values into `$HERMES_HOME/<name>.json`, keep what else is there, and read them back.

    If the file has a block for this host, they go there. None removes a key. Raises `ConfigError` for a secret,
    an unknown key or a wrong value; then nothing is written.
    """
    path = _path(home, name)
    declared = {field.name: field for field in fields}
    new: dict[str, Any] = {}
    for key, value in values.items():
        if key not in declared:
            raise ConfigError(f"{name!r} has no setting {key!r}", _nearest(key, fields))
        if declared[key].secret:
            raise ConfigError(f"{key!r} is a secret and {path.name!r} is no place for it", "put it in .env")
        new[key] = None if value is None else read_value(declared[key], value, str(path))
    # Hermes Agent, a wizard and this process may save at once: read, change and replace under one lock.
    with locked(path):
        source = _file_of(home, name, fields)
        data = _read_file(source)
        if source != path:  # without the secrets of the older file, and without what is no setting
            kept = {one.split(".")[0] for f in fields if not f.secret for one in (f.name, *f.aliases)}
            data = {key: value for key, value in data.items() if key in kept}
        own = _block(data, home)
        target = data if own is None else own
        for key, value in new.items():
            for place in (data, target) if value is None else (target,):
                _put(place, key, value)
        write_atomic(path, f"{json.dumps(data, indent=2, ensure_ascii=False)}\n".encode())
        # A network folder may accept a write and lose it; setup must not report what is not there.
        if _read_file(path) != data:
            raise StorageError(f"{str(path)!r} does not read back as written", "check the disk")
    return path


def read_value(field: Field, raw: Any, where: str = "the answer", *, clamp: bool = False) -> Any:
    """Return `raw`, as a person or a file gives it, in the field's type. Raises `ConfigError` that names `where`."""
    if field.type is str:
        if isinstance(raw, int) and not isinstance(
            raw, bool
        ):  # an account number is often written without quotes
            raw = str(raw)
        elif isinstance(raw, list):
            raw = ", ".join(raw) if all(isinstance(entry, str) for entry in raw) else json.dumps(raw)
    return checked(field, raw, f"{field.name!r} in {where}", clamp=clamp)


def _path(home: Path, name: str) -> Path:
    """Return the provider's file. Raises `ConfigError` for a name that can't be a file's: its settings would be
    nobody's.
    """
    if not name.strip() or name in (".", "..") or any(sign in name for sign in "/\\\0"):
        raise ConfigError(
            f"settings are merged in a file of the provider's name, and {name!r} is none",
            "set name = '...' on the provider's class, and give that name to load_settings and save_settings",
        )
    return HermesHome(home).provider_json(name)


def _file_of(home: Path, name: str, fields: Sequence[Field]) -> Path:
    path = _path(home, name)
    older = HermesHome(home).path / name.removeprefix(FOLDER_PREFIX) / "config.json"
    known = any(field.aliases for field in fields)
    return older if known and not path.exists() and older.is_file() else path


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = read_utf8(path, ConfigError)
        data = json.loads(text) if text or path.exists() else {}
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{str(path)!r} is not JSON: {exc}", "correct it or delete the file") from exc
    if not isinstance(data, dict):
        raise ConfigError(f"{str(path)!r} holds {type(data).__name__!r}", "write a JSON object of settings")
    return data


def _stored(field: Field, stored: Mapping[str, Any]) -> Any:
    """Return the file's value for a field, under its name or an older one; None if there is none."""
    for name in (field.name, *field.aliases):
        for keys in ([name], name.split(".")):
            value: Any = stored
            for key in keys:
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                return value
    return None


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    """Set one value, or remove it if it is None. A dotted name is a place within objects."""
    data.pop(name, None)
    key, _, rest = name.partition(".")
    inner = data.get(key)
    if not rest and value is not None:
        data[key] = value
    elif rest and (value is not None or isinstance(inner, dict)):
        data[key] = inner if isinstance(inner, dict) else {}
        _put(data[key], rest, value)


def _block(data: Mapping[str, Any], home: Path) -> dict[str, Any] | None:
    """Return this host's block in a file that several programs share, None if there is none."""
    hosts = data.get("hosts")
    if not isinstance(hosts, dict):
        return None
    profile = home.name if home.parent.name == "profiles" else ""
    names = [f"hermes_{profile}", f"hermes.{profile}"] if profile else [data.get("defaultHost"), "hermes"]
    return next((hosts[name] for name in names if isinstance(hosts.get(name), dict)), None)


def _of_this_host(data: Mapping[str, Any], home: Path) -> dict[str, Any]:
    if not isinstance(data.get("hosts"), dict):
        return dict(data)
    shared = {key: value for key, value in data.items() if key not in ("hosts", "defaultHost")}
    own = _block(data, home) or {}
    return shared | {key: value for key, value in own.items() if value is not None}


def _without_effect(stored: Mapping[str, Any], fields: Sequence[Field], path: Path) -> Iterator[str]:
    """Yield a sentence for each unknown key of the file, and for each secret in it."""
    known = {key for field in fields for n in (field.name, *field.aliases) for key in (n, n.split(".")[0])}
    for key in stored:
        if key not in known:
            yield f"unknown setting {key!r} in {str(path)!r}; {_nearest(key, fields)}"
    for field in fields:
        if field.secret and _stored(field, stored):
            yield f"{field.name!r} is a secret and is not read from {str(path)!r}; move it to .env as {field.env}"


def _nearest(key: str, fields: Sequence[Field]) -> str:
    names = [field.name for field in fields]
    return did_you_mean(key, names, f"the settings are {', '.join(names)}")
