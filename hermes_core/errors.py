"""Every error this package raises on purpose.

    HermesError
    ├── ConfigError                a value in config.yaml, a provider's file or the environment is wrong
    │   └── CredentialError        .env can't be read or must not take this value
    ├── StorageError               a file or database of ours can't be used
    │   ├── LockTimeout            another process held the lock for too long
    │   ├── DatabaseCorrupt        SQLite says the file is damaged; it was left as it is
    │   └── DatabaseUnavailable    the file can't be opened, written or grown
    ├── CuratedMemoryError         MEMORY.md or USER.md can't be changed as asked
    │   └── MemoryConflict         a hand edit that can't be adopted; it was backed up
    ├── SessionError               a session or message that was asked for is not there, or not allowed
    ├── OutboxError                a durable write could not be accepted
    │   └── OutboxFull             the outbox is at its bound
    ├── SetupFailed                a provider can't be made ready as asked
    ├── ImportFailed               a file to import is not what it claims to be
    ├── SkillError                 a skill that was asked for is not there, or can't be changed as asked
    ├── ModelError                 the language model gave no answer
    │   ├── ModelUnavailable       its server is down, too slow, or over its limits, also after several tries
    │   └── ModelRefused           its server refuses this request, or us
    │       └── ContextOverflow    the request is longer than the model's context
    └── ProviderError              something about a memory provider
        ├── ProviderNotFound       no provider of that name is installed
        ├── ProviderInvalid        it breaks the contract; says what to write instead
        ├── ProviderBlocked        the person's settings say that it must not be loaded
        ├── ProviderUnavailable    it is installed and can't run here
        ├── ToolInputInvalid       raise in a tool: the model's arguments make no sense; the model is told
        ├── BackendUnavailable     raise in a provider: the backend is down or too slow (opens the breaker)
        ├── BackendAuthError       raise in a provider: the backend refuses the credentials (opens the breaker)
        └── BackendRefused         raise in a provider: the backend refuses this very request (does not)
            └── BackendNotFound    raise in a provider: what this request names is not there

A message is one lower-case sentence with the offending value in ``repr``; `remedy` says what to do. The command
line prints both on one line and exits non-zero; any other exception is a bug and shows its traceback.

An error may hold a secret: an address with a password, a key that a server quotes. Whoever sends its text out of the
process redacts it there: logs, printed output, JSON answers, problems of a turn, rows of the outbox.
"""

from __future__ import annotations


class HermesError(Exception):
    """Base of all expected failures: `message` says what is wrong, `remedy` what to do about it."""

    def __init__(self, message: str, remedy: str = "") -> None:
        # Providers often pass the error that they caught instead of its text.
        message, remedy = str(message), str(remedy or "")
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(HermesError):
    """A value in config.yaml, in a provider's own file or in the environment is wrong."""


class CredentialError(ConfigError):
    """`.env` can't be read, or a value is not one that may be written there."""


class StorageError(HermesError):
    """A file or database of ours can't be used."""


class LockTimeout(StorageError):
    """Another process held the lock for longer than we wait."""


class DatabaseCorrupt(StorageError):
    """SQLite reports damage. Nothing was written or deleted."""


class DatabaseUnavailable(StorageError):
    """The database can't be opened, written or grown: permissions, a full disk, an old SQLite."""


class CuratedMemoryError(HermesError):
    """MEMORY.md or USER.md can't be changed as asked."""


class MemoryConflict(CuratedMemoryError):
    """The file holds something that can't be adopted; it was copied to `backup` and left as it is."""

    def __init__(self, message: str, remedy: str = "", backup: str = "") -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, backup)
        self.backup = backup


class SessionError(HermesError):
    """A session or message that was asked for is not there, or may not be used in this way."""


class OutboxError(HermesError):
    """A write could not be made durable, and was therefore not accepted."""


class OutboxFull(OutboxError):
    """The outbox is at its bound; nothing older was thrown away for the new write."""


class SetupFailed(HermesError):
    """A provider can't be made ready as asked; `memory.provider` is as it was."""


class ImportFailed(HermesError):
    """A file to import is not what it claims to be; nothing of the faulty part was stored."""


class SkillError(HermesError):
    """A skill that was asked for is not there, or can't be changed as asked."""


class ModelError(HermesError):
    """The language model gave no answer, or not all of it."""


class ModelUnavailable(ModelError):
    """The model's server is down, too slow or over its limits; `retry_after` is its own wish, in seconds."""

    def __init__(self, message: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, retry_after)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The model's server refuses this request or these credentials; another try would not help."""


class ContextOverflow(ModelRefused):
    """The request is longer than the model's context."""


class ProviderError(HermesError):
    """Something about a memory provider."""


class ProviderNotFound(ProviderError):
    """No provider of that name is installed."""


class ProviderInvalid(ProviderError):
    """The provider breaks the contract. The message says what to write instead."""


class ProviderBlocked(ProviderError):
    """The allow or block list of the settings keeps it from being loaded."""


class ProviderUnavailable(ProviderError):
    """The provider is installed and can't run here: a missing key, program or platform."""


class ToolInputInvalid(ProviderError):
    """For a tool to raise: its arguments are of the right types and make no sense. `kit.ToolBox` tells the model."""


class BackendUnavailable(ProviderError):
    """For providers to raise: the backend is down, unreachable or too slow. Counts towards the breaker.

    `retry_after` is the backend's own wish, in seconds: a durable write waits that long before its next try.
    """

    def __init__(self, message: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, retry_after)
        self.retry_after = retry_after


class BackendAuthError(ProviderError):
    """For providers to raise: the backend refuses our credentials. Counts towards the breaker."""


class BackendRefused(ProviderError):
    """For providers to raise: the backend is well and refuses this very request. Does not open the breaker."""


class BackendNotFound(BackendRefused):
    """For providers to raise: the backend has nothing of the name that this request asks for.

    A write that gets it counts towards the breaker, since a wrong address answers so to everything.
    """
