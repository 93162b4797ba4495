"""Errors that this package raises on purpose. Import them from `hermes_core.errors`.

    HermesError
    ├── ConfigError                a value in config.yaml, a provider's file or the environment is wrong
    │   └── CredentialError        .env can't be read, or must not hold this value
    ├── StorageError               a file or database of the home can't be used
    │   ├── LockTimeout            another process holds the lock for too long
    │   ├── DatabaseCorrupt        a broken page, or a table that is gone; nothing was changed
    │   └── DatabaseUnavailable    the file can't be opened, written or grown
    ├── CuratedMemoryError         MEMORY.md or USER.md can't be changed as asked
    │   └── MemoryConflict         the file can't be adopted; it was copied and left as it is
    ├── SessionError               a session or message does not exist, or can't be used in this way
    ├── OutboxError                a durable write was not accepted
    │   └── OutboxFull             the outbox is full
    ├── SetupFailed                a provider can't be set up as asked
    ├── ImportFailed               a file to import has another content than its format requires
    ├── SkillError                 a skill does not exist, or can't be changed as asked
    ├── ModelError                 the language model gave no answer
    │   ├── ModelUnavailable       its server is down, too slow or over its limits, after several tries
    │   └── ModelRefused           its server refuses the request or the credentials
    │       └── ContextOverflow    the request is longer than the model's context
    └── ProviderError              a memory provider can't be used
        ├── ProviderNotFound       no provider of that name is installed
        ├── ProviderInvalid        it breaks the contract; the message says what to write instead
        ├── ProviderBlocked        the allow or block list forbids it
        ├── ProviderUnavailable    it is installed but can't run here
        │   └── ProviderUnconfigured   it can't be constructed before it has its settings
        ├── ToolInputInvalid       raise in a tool: the arguments make no sense; the model gets the message
        ├── BackendUnavailable     raise in a provider: the backend is down or too slow (opens the breaker)
        ├── BackendAuthError       raise in a provider: the backend refuses the credentials (opens the breaker)
        └── BackendRefused         raise in a provider: the backend refuses this one request (does not open it)
            └── BackendNotFound    raise in a provider: the thing that the request names does not exist

A message is one lower-case sentence with the offending value in ``repr``; `remedy` says what to do. The command
line prints both on one line and exits non-zero; any other exception is a bug and shows its traceback.

An error may hold a secret: an address with a password, a key that a server quotes. Whoever sends its text out of the
process redacts it there: logs, printed output, JSON answers, problems of a turn, rows of the outbox.
"""

from __future__ import annotations


class HermesError(Exception):
    """Base of all expected failures. `message` says what is wrong, `remedy` what to do."""

    def __init__(self, message: str, remedy: str = "") -> None:
        # Providers often pass the error that they caught instead of its text.
        message, remedy = str(message), str(remedy or "")
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(HermesError):
    """Wrong value in config.yaml, in a provider's own file or in the environment."""


class CredentialError(ConfigError):
    """`.env` can't be read, or a value must not be written to it."""


class StorageError(HermesError):
    """File or database of the home that can't be used."""


class LockTimeout(StorageError):
    """Lock that another process held for longer than the timeout."""


class DatabaseCorrupt(StorageError):
    """Damage that the database reports: a broken page, or a table that is gone. Nothing was written or deleted."""


class DatabaseUnavailable(StorageError):
    """Database that can't be opened or written: permissions, a full disk, an old SQLite."""


class CuratedMemoryError(HermesError):
    """MEMORY.md or USER.md can't be changed as asked."""


class MemoryConflict(CuratedMemoryError):
    """Content of MEMORY.md or USER.md that can't be adopted. It was copied to `backup` and left as it is."""

    def __init__(self, message: str, remedy: str = "", backup: str = "") -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, backup)  # pickle makes a copy by calling the class with these
        self.backup = backup


class SessionError(HermesError):
    """Session or message that does not exist, or can't be used in this way."""


class OutboxError(HermesError):
    """Write that could not be made durable and so was not accepted."""


class OutboxFull(OutboxError):
    """Full outbox: the new write was refused, and no older one was deleted."""


class SetupFailed(HermesError):
    """Provider that can't be set up as asked. `memory.provider` is unchanged."""


class ImportFailed(HermesError):
    """File to import whose content does not fit its format. Nothing of the faulty part was stored."""


class SkillError(HermesError):
    """Skill that does not exist, or can't be changed as asked."""


class ModelError(HermesError):
    """Language model that gave no answer, or an incomplete one."""


class ModelUnavailable(ModelError):
    """Server of the model that is down, too slow or over its limits. `retry_after` is the pause in seconds it asks for."""

    def __init__(self, message: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, retry_after)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """Request or credentials that the model's server refuses. Another try would not help."""


class ContextOverflow(ModelRefused):
    """Request that is longer than the model's context."""


class ProviderError(HermesError):
    """Memory provider that can't be used. `cause` is the row of `kit.causes.REMEDIES` that `remedy` comes from, or ""."""

    cause = ""


class ProviderNotFound(ProviderError):
    """Name of which no provider is installed."""


class ProviderInvalid(ProviderError):
    """Provider that breaks the contract. The message says what to write instead."""


class ProviderBlocked(ProviderError):
    """Provider that the allow or block list of the settings forbids."""


class ProviderUnavailable(ProviderError):
    """Provider that is installed but can't run here: a key, a program or the platform is missing."""


class ProviderUnconfigured(ProviderUnavailable):
    """Provider whose constructor raises, as it does as long as a setting or a key is missing.

    `variables` are the environment variables that it asks for, as far as they are known.
    """

    def __init__(self, message: str, remedy: str = "", variables: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, variables)
        self.variables = variables


class ToolInputInvalid(ProviderError):
    """Tool arguments of the right types that make no sense. A tool raises it; `kit.ToolBox` answers the model with it."""


class BackendUnavailable(ProviderError):
    """Backend that is down, unreachable or too slow. A provider raises it; it counts towards the breaker.

    `retry_after` is the pause in seconds that the backend asks for. A durable write waits that long before the next try.
    """

    def __init__(self, message: str, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.args = (self.message, self.remedy, retry_after)
        self.retry_after = retry_after


class BackendAuthError(ProviderError):
    """Credentials that the backend refuses. A provider raises it; it counts towards the breaker."""


class BackendRefused(ProviderError):
    """Request that a healthy backend refuses. A provider raises it; it does not open the breaker."""


class BackendNotFound(BackendRefused):
    """Name in a request that the backend does not have. A provider raises it.

    If a write fails with it, it counts towards the breaker, since a wrong address gives this answer to everything.
    """
