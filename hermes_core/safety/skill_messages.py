"""Messages that Hermes Agent makes of a skill: the person's words in them.

A `/skill` command, a bundle of skills and a skill that a channel loads by itself put the whole text of a skill into the
message of the person. Importers and the views for providers of Hermes Agent take the words out by this one rule.
"""

from __future__ import annotations

import re

_INVOKED = re.compile(r"\[(?:IMPORTANT|SYSTEM): The user has invoked the [^\n]*")
_BUNDLE = " skill bundle,"
_ALONGSIDE = "The user has provided the following instruction alongside the skill invocation: "
_IN_BUNDLE = "\nUser instruction: "
_FIRST_SKILL = ("\n\n[Loaded as part of the ", "\n\n[IMPORTANT: ", "\n\n[SYSTEM: ")
_RUNTIME_NOTE = "\n\n[Runtime note:"

_LOADED = re.compile(
    r"^\[(?:IMPORTANT|SYSTEM): The (?:\"[^\"\n]+\"|'[^'\n]+') skill is auto-loaded[^\]\n]*\]$", re.MULTILINE
)
# The last lines of a skill's text, of which it has some or none.
_FOOTER = re.compile(
    r"run them with the terminal tool using the absolute path\.$|^\[Skill (?:directory|setup note): [^\n]*\]$"
    r"|^\[Skill config[^\]]{0,20000}\]$|^(?:Load any of these with|To view any of these, use) skill_view\([^\n]*$",
    re.MULTILINE,
)


def words_beside_skill(text: str) -> str | None:
    """Return the person's words in a message that was made of a skill, "" if there are none.

    Return None for any other message, which is the person's as a whole.

    >>> words_beside_skill('[IMPORTANT: The "tea" skill is auto-loaded. Follow it.]\\n\\n# Tea\\n\\nGreen, please.')
    'Green, please.'
    """
    if head := _INVOKED.match(text):
        return _instruction(text, is_bundle=_BUNDLE in head[0])
    if not _LOADED.match(text):
        return None
    # A skill may quote the header, but not at the beginning of a line and alone in it.
    body = text[[*_LOADED.finditer(text)][-1].end() :]
    if footers := [*_FOOTER.finditer(body)]:
        return body[footers[-1].end() :].partition("\n\n")[2].strip()
    # A skill without a folder has no footer: the last paragraph is the person's.
    paragraphs = [paragraph for paragraph in body.split("\n\n") if paragraph.strip()]
    return paragraphs[-1].strip() if len(paragraphs) > 1 else ""


def _instruction(text: str, *, is_bundle: bool) -> str:
    """Return the words behind their mark: in a bundle it stands before the skills, else behind the skill."""
    if is_bundle:
        for begin in _FIRST_SKILL:
            text = text.partition(begin)[0]
        words = text.partition(_IN_BUNDLE)[2]
    else:
        # A skill may quote the mark.
        words = text.rpartition(_ALONGSIDE)[2] if _ALONGSIDE in text else ""
    return words.partition(_RUNTIME_NOTE)[0].strip()
