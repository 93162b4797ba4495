"""The secrets in `.env`: private from the first byte, and read as every dotenv reader reads them.

Values are literal: `${NAME}` in a secret stays as it is written. Nothing here changes `os.environ`, so a line in
`.env` never affects this process or its children.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hermes_core.errors import CredentialError
from hermes_core.home import HermesHome
from hermes_core.storage.files import locked, read_utf8, write_atomic

if TYPE_CHECKING:
    from dotenv.parser import Binding

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_COMMENT_AFTER = re.compile(r"[ \t]+#[^'\"\r\n]*(?=[\r\n]*\Z)")

# Variables that control the loader, an interpreter, a shell, git, a package manager or this program, or that send
# network traffic and its certificates elsewhere: whoever can write one of them into .env runs code, or reads what is
# sent, in every process that later loads the file into its environment.
_CONTROLS_PROGRAMS = re.compile(
    # The loader, the C library and the memory allocator.
    "(LD|DYLD|GLIBC|MALLOC|ASAN|UBSAN)_.*|GCONV_PATH|NLSPATH|LOCPATH"
    # Interpreters and their package managers.
    "|(PYTHON|NODE_|PERL5|RUBY|BUNDLE_|GEM_|PIP_|UV_|POETRY_|CONDA_|NPM_|YARN_|PNPM_|COREPACK_|CARGO_|RUSTC|RUSTUP_|LUA_|CORECLR_"
    "|COR_|DOTNET_|COMPLUS_|MAVEN_|GRADLE_).*|_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|VIRTUAL_ENV"
    "|PERLLIB|RUSTFLAGS|GO(FLAGS|PATH|PROXY|ROOT|SUMDB)|PHPRC|PHP_INI_SCAN_DIR"
    # Shells, and the programs that others start.
    "|(BASH|ZSH|GIT_|SSH_|LESS|XDG_|DBUS_).*|PATH|PATHEXT|CDPATH|HOME|USERPROFILE|(LOCAL)?APPDATA|SHELL|SHELLOPTS|ENV|IFS|PS[0-4]"
    "|PROMPT_COMMAND|ZDOTDIR|FPATH|INPUTRC|TERMINFO.*|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|SUDO_(ASKPASS|EDITOR)|COMSPEC"
    "|SYSTEMROOT|WINDIR|PSMODULEPATH|TMP|TEMP|TMPDIR"
    # Certificates, proxies and name resolution.
    "|SSL_CERT_(FILE|DIR)|SSLKEYLOGFILE|OPENSSL_.*|(REQUESTS|CURL|AWS)_CA_BUNDLE|NIX_SSL_CERT_FILE|GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
    "|(.*_)?PROXY|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|(DOCKER|CONTAINER)_HOST|KUBECONFIG"
    # This program.
    "|HERMES_.*"
)
# A secret may begin like these, as HERMES_MONGODB_URI and GIT_TOKEN do; its ending shows that it is one.
_CREDENTIAL_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_URI")

# Four characters tell one key from another; of a short password they would be a third.
_SHOWN_CHARS = 4
_MIN_CHARS_TO_SHOW = 12


class Credentials:
    """The secrets of one home. The environment comes before `.env`; an empty variable counts as not set.

    Attributes:
        lent: Variables of this process that were filled from a home's `.env`, for code that reads nothing but its
            environment. They are ignored here: with two homes in one process, the first one's key would win over the
            second one's `.env`.
    """

    lent: ClassVar[dict[str, str]] = {}

    def __init__(self, home: HermesHome, environ: Mapping[str, str] | None = None) -> None:
        self.path: Path = home.env_file
        self._environ = os.environ if environ is None else environ

    def __repr__(self) -> str:
        return f"Credentials({str(self.path)!r}, {', '.join(f'{name}=***' for name in self.names())})"

    def get(self, name: str) -> str | None:
        """Return the secret of this name from the environment, else from `.env`; None if neither has a value.

        Line ends around the value are removed: a variable that was filled from a file has one at its end.
        """
        value = self._own(name) or _values(self._read()).get(name) or ""
        return value.strip("\r\n") or None

    def source(self, name: str) -> str:
        """Return the place that `get` reads it from: "environment", ".env", or "" for none."""
        if self._own(name):
            return "environment"
        return ".env" if _values(self._read()).get(name) else ""

    def masked(self, name: str) -> str:
        """Return what may be shown of the secret: the last four characters of a long one, else "***", "" if
        it is not set.
        """
        value = self.get(name)
        if value is None:
            return ""
        return f"...{value[-_SHOWN_CHARS:]}" if len(value) >= _MIN_CHARS_TO_SHOW else "***"

    def names(self) -> list[str]:
        """Return the names with a value in `.env`, sorted."""
        return sorted(name for name, value in _values(self._read()).items() if value)

    def unread_lines(self) -> list[int]:
        """Return the numbers of the lines of `.env` that set nothing, such as `NAME: VALUE` or a line
        without its closing quote.
        """
        return [
            one.original.line + len(one.original.string) - len(one.original.string.lstrip("\n"))
            for one in _bindings(self._read().replace("\r\n", "\n"))
            if one.error or (one.key is not None and one.value is None)
        ]

    def for_environment(self) -> dict[str, str]:
        """Return the values of `.env` that the environment lacks, without names that affect programs.

        For code that reads nothing but its environment.
        """
        return {
            name: value
            for name, value in _values(self._read()).items()
            if value and not self._own(name) and _NAME.fullmatch(name) and not controls_programs(name)
        }

    def controlling_names(self) -> list[str]:
        """Return the names in `.env` that control programs. `for_environment` leaves them out."""
        return [name for name in self.names() if controls_programs(name)]

    def set(self, name: str, value: str, *, force: bool = False) -> None:
        """Write one secret. Comments, order and `export` stay, and the name keeps one line.

        Raises `CredentialError` for a name or value that `.env` must not have; then the file is unchanged.

        Args:
            force: True to write a name that controls programs, such as a proxy. Other programs that load `.env` obey
                it; providers written for Hermes Agent still do not see it.
        """
        _refuse_bad_name(name, force=force)
        _refuse_bad_value(name, value)
        # Two processes may write at once: each reads the file again under the lock, and none loses the other's line.
        with locked(self.path):
            self._write(_with_value(self._read(), name, value))

    def remove(self, name: str) -> bool:
        """Remove the secret from `.env`, and return whether it was there. The environment is unchanged."""
        with locked(self.path):
            text = self._read()
            if name not in _values(text):
                return False
            self._write("".join(b.original.string for b in _bindings(text) if b.key != name))
            return True

    def _own(self, name: str) -> str:
        """Return the environment's value, "" if some home's `.env` lent it to the environment."""
        value = self._environ.get(name) or ""
        return "" if self._environ is os.environ and self.lent.get(name) == value else value

    def _read(self) -> str:
        return read_utf8(self.path, CredentialError)

    def _write(self, text: str) -> None:
        write_atomic(self.path, text.encode())


def _refuse_bad_name(name: str, *, force: bool) -> None:
    if not _NAME.fullmatch(name):
        raise CredentialError(f"{name!r} can't name a secret", "use letters, digits and '_', no digit first")
    if controls_programs(name) and not force:
        raise CredentialError(
            f"{name!r} controls programs and is no secret", "set it in your shell if you need it"
        )


def controls_programs(name: str) -> bool:
    """Return True if a variable of this name changes which code programs run, or where they send what they send."""
    upper = name.upper()
    if upper.endswith(_CREDENTIAL_ENDINGS):
        return False
    return _CONTROLS_PROGRAMS.fullmatch(upper) is not None


def _refuse_bad_value(name: str, value: str) -> None:
    if any(sign in value for sign in "\r\n\0"):
        raise CredentialError(f"the value of {name!r} holds a line break or NUL", "give it as one line")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise CredentialError(f"the value of {name!r} is not valid text", "type it again") from exc


def _bindings(text: str) -> list[Binding]:
    """Return every statement of the file with its original text. Joined, the texts are the file."""
    if not text:
        return []
    from dotenv.parser import parse_stream  # most homes have no .env

    return list(parse_stream(io.StringIO(text, newline="")))


def _values(text: str) -> dict[str, str | None]:
    """Return the values by name, as python-dotenv reads the file without interpolation. The last line of a name wins."""
    return {b.key: b.value for b in _bindings(text) if b.key is not None and not b.error}


def _with_value(text: str, name: str, value: str) -> str:
    """Return the file with this one value changed.

    Versions of the dotenv grammar differ: in `'a\\'` python-dotenv before 1.2.3 lets the last backslash escape
    the quote if another quote follows anywhere in the file. So each candidate is read back whole before it is
    taken. Raises `CredentialError` if no spelling keeps every value.
    """
    wanted = {**_values(text), name: value}
    for candidate in _candidates(text, name, value):
        # A quote of the new line may swallow a line below it, so all values are compared, not only the new one.
        if _values(candidate) == wanted:
            return candidate
    raise CredentialError(
        f"the value of {name!r} can't be written so that every reader sees it whole",
        "it or a value beside it mixes quotes, spaces and a backslash: set it in the environment instead",
    )


def _candidates(text: str, name: str, value: str) -> Iterator[str]:
    """Yield the ways to write it, best first: in the old place, then at the end, where nothing can follow; each
    in three quotings.
    """
    bindings = _bindings(text)
    mine = [index for index, binding in enumerate(bindings) if binding.key == name]
    split = mine[0] if mine else len(bindings)
    old = bindings[split].original.string if mine else ""
    before = "".join(b.original.string for b in bindings[:split])
    after = "".join(b.original.string for b in bindings[split:] if b.key != name)
    newline = "\r\n" if "\r\n" in text else "\n"
    for head, tail in ((before, after), (before + after, "")):
        gap = newline if head and not head.endswith(("\n", "\r")) else ""
        for line in _lines(old, name, value):
            yield f"{head}{gap}{line}{newline}{tail}"


def _lines(old: str, name: str, value: str) -> Iterator[str]:
    """Yield the statement in each quoting, with the `export` and the comment of the old line."""
    lead = re.match(r"\s*(export\s+)?", old)
    comment = _COMMENT_AFTER.search(old)
    escaped = value.replace("\\", "\\\\")
    single, double = escaped.replace("'", "\\'"), escaped.replace('"', '\\"')
    quoted = [f"'{single}'", f'"{double}"']
    for spelling in [value, *quoted] if _BARE.fullmatch(value) else [*quoted, value]:
        yield f"{lead[0] if lead else ''}{name}={spelling}{comment[0] if comment else ''}"
