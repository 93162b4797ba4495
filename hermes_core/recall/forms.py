"""English words to search for besides a word of a question: irregular forms (go, went) and similar words (movie, film).

Only questions are expanded; the index holds the words that people wrote. A similar word counts less than the word of
the question, see `rank.SIMILAR_WORD_WEIGHT`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

_IRREGULAR = """
    be been being was were is are; become became; begin began begun; bite bit bitten; blow blew blown; break broke
    broken; bring brought; build built; buy bought; catch caught; choose chose chosen choice; come came; deal dealt;
    dig dug; do did done; draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall
    fell fallen; feel felt; fight fought; find found; fly flew flown; forget forgot forgotten; forgive forgave
    forgiven; freeze froze frozen; get got gotten; give gave given; go went gone; grow grew grown growth; hang hung;
    have had; hear heard; hide hid hidden; hold held; keep kept; know knew known; lay laid; lead led; learn learnt;
    leave left; lend lent; lie lay lain; light lit; lose lost loss; make made; mean meant; meet met; pay paid; ride
    rode ridden; ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send
    sent; shake shook shaken; shine shone; shoot shot; show shown; sing sang sung song; sink sank sunk; sit sat;
    sleep slept; speak spoke spoken speech; spend spent; stand stood; steal stole stolen; stick stuck; strike
    struck; swear swore sworn; sweep swept; swim swam swum; take took taken; teach taught; tear tore torn; tell
    told; think thought; throw threw thrown; understand understood; wake woke woken; wear wore worn; weave wove
    woven; win won; write wrote written; child children; foot feet; goose geese; half halves; knife knives; leaf
    leaves; life lives live; loaf loaves; man men; mouse mice; person people; shelf shelves; tooth teeth; wife
    wives; wolf wolves; woman women; good better best; bad worse worst
"""

_EVERYDAY = """
    mother mom mum mommy mama; father dad daddy papa; parent mom dad mother father; grandmother grandma granny nana;
    grandfather grandpa; child kid son daughter; children kids; sibling brother sister; husband spouse partner wife;
    photo picture pic photograph; movie film; job work career; vacation holiday trip; trip travel vacation journey
    getaway visit; doctor physician; bike bicycle cycling; car vehicle; pet dog cat puppy; dog puppy pup; cat kitten
    kitty; tv television show; phone smartphone; country nation; buy purchase get; start begin; finish complete;
    happy glad thrilled excited; sad upset down; scared afraid frightened; like love enjoy; favorite favourite love
    fave; hobby interest activity; activity hobby; friend buddy pal; meal dinner lunch food dish; food meal dish
    cuisine; restaurant diner cafe; store shop; town city; city town; exercise workout gym; company business firm;
    money cash; gift present; university college; study studying degree; church faith; book novel read; author
    writer; music song band; instrument guitar piano violin; game videogame gaming; competition contest tournament;
    tournament competition; award prize trophy medal; sick ill; health medical; marry married wedding; wedding
    marriage; baby newborn; beach ocean sea; hike hiking trail; paint painting art; help assist support; fix repair;
    error bug failure; delete remove; config configuration settings; deploy deployment release; server host
"""


def _groups(table: str) -> Iterator[list[str]]:
    return (group.split() for group in table.split(";"))


@cache
def _irregular() -> dict[str, tuple[str, ...]]:
    """Return a mapping from each irregular form to all other forms of the same word."""
    forms: dict[str, tuple[str, ...]] = {}
    for group in _groups(_IRREGULAR):
        for word in group:
            others = (other for other in group if other != word)
            forms[word] = tuple(dict.fromkeys((*forms.get(word, ()), *others)))
    return forms


@cache
def _everyday() -> dict[str, tuple[str, ...]]:
    """Return a mapping from words to similar words: other words for the same thing, or for a kind of it.

    It is not symmetric: "pet" maps to "dog", but "dog" does not map to "pet".
    """
    return {head: tuple(others) for head, *others in _groups(_EVERYDAY)}


def irregular_forms(word: str) -> tuple[str, ...]:
    """Return the other forms of an irregular word, from any of its forms; no forms for a regular word.

    >>> irregular_forms("went")
    ('go', 'gone')
    """
    return _irregular().get(word, ())


def similar_words(word: str) -> tuple[str, ...]:
    """Return words that people may use instead of `word` in everyday speech.

    >>> similar_words("movie")
    ('film',)
    """
    singular = word.removesuffix("s")
    return _everyday().get(word) or _everyday().get(singular, ())
