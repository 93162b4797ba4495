"""Tokens of programs and of persons. The store has only their hashes."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Collection, MutableMapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from hermes_core import Memory
from hermes_core.contract.values import SessionFields, parse_outside_id
from hermes_core.errors import ConfigError, SessionError

Scope = Literal["read", "write", "review", "forget", "admin"]
"""Permissions of a token. `admin` is to review and to forget any person, for a program that serves several."""

OF_A_PERSON: tuple[Scope, ...] = ("read", "write", "review", "forget")
OF_A_PROGRAM: tuple[Scope, ...] = ("read", "write", "admin")
DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "write")

# The hash of the token stands among the values that hosts keep for all users of a platform, so it is in the database of the
# home: each process and each machine that serves the home knows it, and a revocation counts for all of them at once.
PLATFORM = "hermes-memory-http"

_TOKEN = re.compile(r"hmt_([0-9a-f]{8})_([0-9a-f]{64})")


class Token(Struct, frozen=True):
    """A token as it is stored.

    Attributes:
        id: The public part of the token, by which it is listed and revoked.
        name: The program or device that has it.
        user: The one person whose memory it opens, as `Session.outside_id`; "" for the person at home; None for a program
            that names a person in each request.
        scopes: The permissions.
        digest: SHA-256 of the secret part, which is random, so that a slow hash would add nothing.
    """

    id: str
    name: str
    user: str | None
    scopes: tuple[Scope, ...]
    created_at: float
    digest: str

    def may(self, scope: Scope) -> bool:
        """Return True if the token has a permission."""
        return scope in self.scopes or (scope in ("review", "forget") and "admin" in self.scopes)

    @property
    def whose(self) -> str:
        """The person whose memory the token opens, in words."""
        if self.user is None:
            return "any user"
        return self.user or "the person at home"


class TokenStore:
    """The tokens of a home, on its engine.

    The token of a person is among the values of that person, which are deleted when the person is forgotten; the values of
    the platform have only the name of the person under the id of the token. All other tokens are there themselves.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._state = memory.conversation(platform=PLATFORM).app_state

    def create(self, name: str, user: str | None, scopes: Collection[str]) -> tuple[Token, str]:
        """Store a new token. Return it, and its text, which is not stored.

        Raises:
            ConfigError: The scopes do not go with a token of this kind.
            SessionError: `user` is no id of a user or chat.
        """
        fields_of_user(user or "")
        allowed = OF_A_PROGRAM if user is None else OF_A_PERSON
        if wrong := [scope for scope in scopes if scope not in allowed]:
            kind = "a program that names its users" if user is None else "one person"
            raise ConfigError(
                f"a token of {kind} can't have the scope {wrong[0]!r}", f"use {', '.join(allowed)}"
            )
        key, secret = secrets.token_hex(4), secrets.token_hex(32)
        ordered = tuple(scope for scope in get_args(Scope) if scope in (scopes or DEFAULT_SCOPES))
        token = Token(key, name, user, ordered, time.time(), _digest(secret))
        if user:
            self._state[key] = {"user": user}
        self._place(user)[key] = msgspec.to_builtins(token)
        return token, f"hmt_{key}_{secret}"

    def find(self, text: str) -> Token | None:
        """Return the token with this text; None if there is none, if it was revoked, or if its person was forgotten."""
        match = _TOKEN.fullmatch(text)
        token = self._get(match[1]) if match else None
        return token if match and token and hmac.compare_digest(token.digest, _digest(match[2])) else None

    def list(self) -> list[Token]:
        """Return all tokens, oldest first. What is left of those whose person was forgotten is deleted."""
        found = [token for key in list(self._state) if (token := self._get(key)) is not None]
        return sorted(found, key=lambda token: token.created_at)

    def revoke(self, key: str) -> Token:
        """Delete a token. The next request with it is refused.

        Raises:
            ConfigError: There is no token with this id.
        """
        if (token := self._get(key)) is None:
            raise ConfigError(f"there is no token {key!r}", "hermes-memory serve token list shows the ids")
        # The token goes first: without it, its name opens nothing.
        self._place(token.user).pop(key, None)
        self._state.pop(key, None)
        return token

    def _get(self, key: str) -> Token | None:
        """Return a token. The name of a person who was forgotten is deleted."""
        if (stored := self._state.get(key)) is None:
            return None
        if "digest" not in stored and (stored := self._place(stored["user"]).get(key)) is None:
            self._state.pop(key, None)
            return None
        return msgspec.convert(stored, Token)

    def _place(self, user: str | None) -> MutableMapping[str, Any]:
        """Return the values among which the token of a person, or of a program, is."""
        return self._memory.conversation(**fields_of_user(user)).user_state if user else self._state


def fields_of_user(user: str) -> SessionFields:
    """Return the fields of a session of a person: "" for the person at home.

    Raises:
        SessionError: `user` is no id of a user or chat.
    """
    if user.endswith("/"):  # a platform, each of whose visitors has a memory of their own
        raise SessionError(f"{user!r} names nobody", "write PLATFORM:USER_ID or PLATFORM/CHAT_ID")
    return SessionFields(**parse_outside_id(user)) if user else SessionFields(platform="local")  # type: ignore[typeddict-item]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
