"""Values between the views and the site: a request of the browser, and what a view answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_core.errors import SessionError

# The largest number that SQLite stores.
MAX_INTEGER = 2**63 - 1


# Python refuses to read numbers of thousands of digits.
MAX_DIGITS = len(str(MAX_INTEGER))


class RequestError(SessionError):
    """A value of a request that no form or link of ours sends."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request: the values of its address, and of its form."""

    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number from the address or the form, `default` if it is not there.

        Raises:
            RequestError: The value is no number, or a larger number than is ever stored.
        """
        text = self.form.get(name, self.query.get(name, ""))
        if not text:
            return default
        if not (text.isascii() and text.isdigit()):
            raise RequestError(f"{name} is {text[: 2 * MAX_DIGITS]!r}", "it must be a whole number")
        if len(text) > MAX_DIGITS or int(text) > MAX_INTEGER:
            raise RequestError(
                f"{name} is {text[: 2 * MAX_DIGITS]!r}", f"it must be a number up to {MAX_INTEGER}"
            )
        return int(text)

    def required_number(self, name: str) -> int:
        """Return a whole number. Raise `RequestError` if it is missing or no number."""
        number = self.number(name)
        if number is None:
            raise RequestError(f"{name} is missing", "go back and choose again")
        return number


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """The way to another view after an action, with a message for the person.

    Attributes:
        location: Path and query of the view.
        message: Sentences about what was done, or why it was refused.
        failed: True if the action was refused.
        draft: Text that the person wrote and that was not stored.
    """

    location: str
    message: str = ""
    failed: bool = False
    draft: str = ""


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file for the browser to save."""

    name: str
    lines: Iterable[str]


Answer = Page | Redirect | FileAnswer
