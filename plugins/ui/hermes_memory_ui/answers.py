"""Values between the views and the site: a request of the browser, and what a view answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_core.errors import SessionError

# The largest number that SQLite stores.
MAX_INTEGER = 2**63 - 1


# Python refuses to read numbers of thousands of digits.
MAX_DIGITS = len(str(MAX_INTEGER))

CHOSEN = "handle"
"""Name of the fields that name notes."""


class RequestError(SessionError):
    """A value of a request that no form or link of ours sends."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request: the values of its address, and of its form. `chosen` are the handles of all boxes that are ticked."""

    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    chosen: Sequence[str] = ()

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number from the address or the form, `default` if it is not there.

        Raises:
            RequestError: The value is no number, or a larger number than is ever stored.
        """
        text = self.form.get(name, self.query.get(name, ""))
        return _number(name, text) if text else default

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a form, which blanks separate. Raise `RequestError` if there is none."""
        numbers = [_number(name, text) for text in self.form.get(name, "").split()]
        return numbers or [self.required_number(name)]

    def required_number(self, name: str) -> int:
        """Return a whole number. Raise `RequestError` if it is missing or no number."""
        number = self.number(name)
        if number is None:
            raise RequestError(f"{name} is missing", "go back and choose again")
        return number


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise RequestError(f"{name} is {text[: 2 * MAX_DIGITS]!r}", "it must be a whole number")
    if len(text) > MAX_DIGITS or int(text) > MAX_INTEGER:
        raise RequestError(
            f"{name} is {text[: 2 * MAX_DIGITS]!r}", f"it must be a number up to {MAX_INTEGER}"
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def question(title: str, text: str, yes: tuple[str, str, Mapping[str, Any]], no: str) -> Page:
    """Return a page that asks before something is deleted for good.

    Args:
        yes: Address, label and values of the form that deletes it.
        no: Location to go back to.
    """
    path, label, values = yes
    shown = {"question": title, "text": text, "path_of_yes": path, "yes": label, "values": values, "no": no}
    return Page("question.html", shown)


@dataclass(frozen=True, slots=True)
class Redirect:
    """The way to another view after an action, with a message for the person.

    Attributes:
        location: Path and query of the view.
        message: Sentences about what was done, or why it was refused.
        failed: True if the action was refused.
        draft: Text that the person wrote and that was not stored.
        undo: Values of the form that takes the action back with a button beside the message, by its address.
    """

    location: str
    message: str = ""
    failed: bool = False
    draft: str = ""
    undo: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file for the browser to save."""

    name: str
    lines: Iterable[str]


Answer = Page | Redirect | FileAnswer
