"""Recognition of files that hold keys or a memory: by their name, and by what is in them.

Names end somewhere, and a copy may have any name. So the content decides as well: a database, a key of a known format, a
file of settings with passwords, and what this program writes of a memory (a backup, an export, a session). Archives are
looked into. Text may be in UTF-8, UTF-16 or UTF-32, also without a byte order mark.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import IO, Any

from hermes_core.safety.key_formats import without_keys
from hermes_core.safety.redact import redact

# Folders of keys, wherever they are. Below a folder that the person named, other hidden folders are refused as well.
KEY_FOLDERS = frozenset(
    [
        ".ssh",
        ".aws",
        ".azure",
        ".gnupg",
        ".kube",
        ".docker",
        ".hermes",
        ".password-store",
        ".mozilla",
        ".thunderbird",
        ".gcloud",
        "gcloud",
        ".oci",
        ".terraform.d",
        ".claude",
        ".codex",
        ".gemini",
        "keychains",
        "keyrings",
    ]
)

# Names of files that hold keys, in lower case. Hidden files, such as .env, .netrc and .npmrc, need no pattern.
_KEY_FILES = """
id_rsa* id_dsa* id_ecdsa* id_ed25519* id_xmss* ssh_host_*_key *.pem *.key *.p8 *.p12 *.pfx *.pk8 *.ppk *.agekey *.keytab
*.jks *.jceks *.keystore *.truststore *.kdb *.kdbx *.gpg *.pgp *.ovpn *.mobileprovision *.env *.netrc _netrc netrc
client_secret*.json service*account*.json *adminsdk*.json auth.json htpasswd *.htpasswd pgpass pgpass.conf kubeconfig
*.kubeconfig shadow gshadow sudoers master.passwd *.tfvars *.tfvars.json *.tfstate wallet.dat wallet.json key3.db key4.db
logins.json signons.sqlite cookies cookies.sqlite cookies.txt login?data web?data local?state
"""

# Such a word is a name of its own or the last word of a name: aws_credentials.json, but not credentials.md or token.py.
_KEY_WORD = re.compile(
    r"(?:.*[._ -])?(?:credentials?|secrets?|tokens?|passwords?|passwd|api[_-]?keys?|private[_-]?keys?)"
    r"(?:\.(?:json|ya?ml|toml|ini|cfg|conf|properties|xml|csv|txt|db|sqlite|enc))*"
)

# Endings under which editors and people keep copies: id_rsa.bak holds the same key.
_COPY = re.compile(r"(?:~|\.(?:bak|backup|old|orig|save|swp|swo|tmp|copy|txt|\d+)|[ _-]copy| \(\d+\))$")

# Private keys as text, and as DER: PKCS #8, PKCS #1, SEC 1 and PKCS #12 begin with a version, certificates do not. The
# last line is the packet of a secret key of OpenPGP (https://www.rfc-editor.org/rfc/rfc4880#section-5.5).
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File-|AGE-SECRET-KEY-1|openssh-key-v1\0"
    rb"|\A\x30(?:[\x00-\x7f]|\x81.|\x82..)\x02\x01(?:\x00[\x02\x30]|\x01\x04|\x03\x30)"
    rb"|\A(?:\x94.|\x95..|\xc5..?)\x04",
    re.DOTALL,
)

# SQLite's databases, rollback journals and write-ahead logs (https://sqlite.org/fileformat2.html), and the databases of
# passwords of KeePass and Java.
_SQLITE = b"SQLite format 3\0"
_DATABASES = (
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
    b"\x03\xd9\xa2\x9a",
    b"\xfe\xed\xfe\xed",
    b"\xce\xce\xce\xce",
)

# Files of passwords whose lines name no password: of Docker, Kubernetes, npm and Wi-Fi, a JSON Web Key, cookies of a browser
# as lines and as JSON, .pgpass alone in its file, and a table with a column of passwords.
_SETTINGS = re.compile(
    r"""(?imx) "auths"\s*:\s*\{(?s:.{0,300}?)"auth"\s*:\s*"[\w+/=]{8} | ^\s*client-key-data:\s*\S
    | ^(?://\S+:)?_auth=[\w+/]{12,}=*\s*$ | \bnetwork\s*=\s*\{[^{}]{0,400}\bpsk\s*=
    | "kty"\s*:(?s:.{0,4000}?)"d"\s*:\s*"[\w-]{20} | "d"\s*:\s*"[\w-]{20}(?s:.{0,4000}?)"kty"\s*:
    | ^\S+\t(?:TRUE|FALSE)\t/\S*\t(?:TRUE|FALSE)\t\d+\t\S+\t\S
    | "value"\s*:\s*"[^{}]{1,1000}"(?:hostonly|httponly|samesite)"\s*:
    | "(?:hostonly|httponly|samesite)"\s*:[^{}]{1,1000}"value"\s*:\s*"[^"]
    | \A(?:\#.*\n)*(?:[^:\n]+:(?:\d{1,5}|\*):[^:\n]*:[^:\n]+:\S+\r?(?:\n|\Z))+\Z
    | \A(?:[^\n]{0,400}[,;\t]"?(?:[a-z]+_)?(?:password|passwort)"?[,;\t\r\n]|"?(?:password|passwort)"?[,;\t])
    """
)

# Each file that this program writes of a memory names its format: a line of a session, the manifest of an archive.
_OWN_FORMAT = re.compile(rb'"format"\s*:\s*"hermes-memory-')

# A file of settings has a secret in one of so many lines; code and prose that only speak of secrets have fewer.
_LINES_PER_SECRET = 20

# Of all archives of a file together, so that archives in archives take no longer than one.
_MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_MAX_MEMBERS = 5000
_MAX_DEPTH = 3
_MAX_SETTINGS_CHARS = 64 * 1024
_MARK = "[redacted:"

_ENCODINGS = {  # the marks of UTF-32 first: one begins like that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WIDE_TEXT = re.compile(rb"(?:[\t\n\r -~]\0{1,3}){7,}[\t\n\r -~]?")  # UTF-16 or UTF-32 of either order

_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{1000,}")
_MAX_KEY_CHARS = 4000
_PIECE_CHARS = 64 * 1024

# https://www.rfc-editor.org/rfc/rfc1952 and the formats of bzip2 and xz
_COMPRESSED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
# ZIP with its end cut or hidden, 7z, RAR, Zstandard, LZ4, compress, LZMA, lzip, Cabinet, xar
_UNREADABLE = (
    b"PK\x03\x04",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
    b"\x28\xb5\x2f\xfd",
    b"\x04\x22\x4d\x18",
    b"\x1f\x9d",
    b"\x1f\xa0",
    b"\x5d\0\0",
    b"LZIP",
    b"MSCF\0",
    b"xar!",
)
_ARCHIVE_ERRORS = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)


def names_keys(name: str) -> bool:
    """Return True if a file or folder of this name holds keys."""
    name = name.casefold()
    if os.name == "nt":  # Windows opens "key.pem." and "key.pem::$DATA" as key.pem
        name = name.partition(":")[0].rstrip(" .")
    while True:
        if name.endswith(".pub"):
            return False
        if _KEY_WORD.fullmatch(name) or any(fnmatch(name, pattern) for pattern in _KEY_FILES.split()):
            return True
        shorter = _COPY.sub("", name)
        if shorter in ("", name):
            return False
        name = shorter


def private_reason(content: bytes) -> str:
    """Return the reason why a file of this content may not leave the machine, as a predicate of the file; "" if it may."""
    parts = _parts(content, _MAX_DEPTH, _Budget())
    return next(filter(None, (_reason(name, part) for name, part in parts)), "")


def _reason(name: str, content: bytes | None) -> str:
    within = f" ({name!r} in it)" if name else ""
    if content is None:
        return f"is an archive that can't be looked through{within}"
    if any(names_keys(part) for part in name.split("/")):
        return f"holds a file that is named like one of keys{within}"
    # Also in the middle: an old or unknown archive may have stored the database as it is.
    if content.startswith(_DATABASES) or _SQLITE in content:
        return f"is a database, which may hold keys and conversations{within}"
    content = _utf8(content)
    if _PRIVATE_KEY.search(content):
        return f"has a private key in it{within}"
    if _OWN_FORMAT.search(content):
        return f"is a backup or an export of a memory{within}"
    text = content.decode("utf-8", errors="replace")
    if any(without_keys(piece) != piece for piece in _pieces(text)):
        return f"has a key in it{within}"
    # A file of settings shows in its beginning, and redaction takes a second for each megabyte.
    begin = text[:_MAX_SETTINGS_CHARS].removeprefix("\ufeff")
    secrets = redact(begin).count(_MARK) - begin.count(_MARK)
    lines = sum(not line.isspace() for line in begin.splitlines())
    settings = 0 < lines <= secrets * _LINES_PER_SECRET or _SETTINGS.search(begin)
    return f"has passwords or keys in it{within}" if settings else ""


def _utf8(content: bytes) -> bytes:
    """Return a file with its texts in UTF-8: those of UTF-16 and UTF-32 are found by their byte order mark or their zeros."""
    for mark, encoding in _ENCODINGS.items():
        if content.startswith(mark):
            return content.decode(encoding, errors="replace").encode("utf-8", errors="replace")
    return _WIDE_TEXT.sub(lambda run: run[0].replace(b"\0", b""), content)


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of a text in which keys are searched. A piece ends between lines, if they are short enough.

    In pieces, a large text does not stop the other threads, and what is encoded, such as a picture in a page, is left out:
    no key is that long, and the patterns would take seconds for each megabyte.
    """
    text, start = _ENCODED.sub(" ", text), 0
    while start < len(text):
        most = min(start + 2 * _PIECE_CHARS, len(text))
        end = text.find("\n", start + _PIECE_CHARS, most) + 1 or most
        yield text[start:end]
        # A key over the cut of a long line stands whole in the next piece.
        start = end if end == len(text) or text[end - 1] == "\n" else end - _MAX_KEY_CHARS


class _Budget:
    """Bytes and files that may still be unpacked."""

    def __init__(self) -> None:
        self._bytes, self._members = _MAX_UNPACKED_BYTES, _MAX_MEMBERS

    def read(self, file: IO[bytes]) -> bytes:
        """Read a member of an archive. Raise ValueError if there is more than what is looked through."""
        content = file.read(self._bytes + 1)
        self._bytes -= len(content)
        self._members -= 1
        if min(self._bytes, self._members) < 0:
            raise ValueError("the archives are larger than what is looked through")
        return content


def _parts(content: bytes, depth: int, budget: _Budget, name: str = "") -> Iterator[tuple[str, bytes | None]]:
    """Yield the file and each file in it, if it is an archive, with its name there. None stands for what can't be read."""
    yield name, content
    try:
        for inner, part in _members(content, budget):
            if not depth:
                yield inner, None
                return
            yield from _parts(part, depth - 1, budget, inner)
    except (OSError, EOFError, RuntimeError, NotImplementedError, ValueError, *_ARCHIVE_ERRORS):
        yield name, None  # encrypted, cut, unknown, or larger than the limit: nobody knows what is in it


def _members(content: bytes, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of a ZIP or tar archive, or of what gzip, bzip2 or xz hold."""
    file = io.BytesIO(content)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    with archive.open(member) as opened:
                        yield member.filename, budget.read(opened)
        return
    if content.startswith(_UNREADABLE):
        raise ValueError("an archive of this format is not looked through")
    file.seek(0)
    opener = next((opener for magic, opener in _COMPRESSED.items() if content.startswith(magic)), None)
    if opener is not None:
        with opener(file) as opened:
            yield "", budget.read(opened)
    elif _is_tar(content):
        with tarfile.open(fileobj=file) as tar:
            for entry in tar:
                if entry.isfile() and (opened_entry := tar.extractfile(entry)):
                    yield entry.name, budget.read(opened_entry)


def _is_tar(content: bytes) -> bool:
    """Return True if a file begins with a header of tar. Old ones have no magic number, but all have a sum of the header."""
    try:
        tarfile.TarInfo.frombuf(content[:512], "utf-8", "replace")
    except tarfile.HeaderError:
        return False
    return True
