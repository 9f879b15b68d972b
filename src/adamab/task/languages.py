"""Whether texts are in English, as far as scripts and a few very common words tell."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

_ENGLISH = "English"
_OTHER = "another language"
_MOST_TEXTS, _MOST_CHARACTERS = 1000, 1000  # that are looked at; more would say the same
_LEAST_SHARE = 0.25  # of the texts that have to show another language
_LEAST_TEXTS = 2

# Words that hardly any text of the language does without; of the others none that is frequent in English.
_WORDS = {
    _ENGLISH: "the and is are was to of for in on it my your you we what how when where who why which can "
    "do does not with this that have has please would could should an at be if from need want there about",
    "German": "der das und nicht ich ist ein eine einen zu auf für mit von wird habe den dem im es wie mein "
    "meine sie wir bitte kann warum wo wann wer",
    "French": "le la les des est une un je ne pas que qui pour dans sur mon ma vous nous avec ce cette du "
    "et au aux il elle mais comment pourquoi",
    "Spanish": "el la los las que de en es un una por con para mi se su como del lo al más está quiero cómo "
    "qué",
    "Italian": "il lo la gli le che di non un una per con sono mi ho del della come questo perché",
    "Portuguese": "os que de não um uma para com por meu minha em da se está ao como eu você",
    "Dutch": "de het een en niet ik van dat met voor mijn zijn hoe er aan naar waarom kan",
    "Polish": "nie jest się na że jak moje moja mój czy proszę dla od po co gdzie",
    "Czech": "je se na že jak mi můj prosím pro od co není jsem kde",
    "Swedish": "och att det är inte jag som på för med min hur en ett vill",
    "Danish": "og at det er ikke jeg som på til med min hvordan en et kan",
    "Turkish": "bir ve bu için değil ne çok nasıl benim mı mi",
    "Indonesian": "yang dan di ini itu saya tidak untuk dengan dari apa bagaimana",
}
_LANGUAGES: dict[str, list[str]] = {}  # by word
for _language, _listed in _WORDS.items():
    for _word in _listed.split():
        _LANGUAGES.setdefault(_word, []).append(_language)


def other_language(texts: Iterable[str]) -> str | None:
    """The language that most of the texts seem to be in, if that is not English.

    A text counts for the language of which it has the most common words. Where it has none at all it counts
    for another language if it is written in another script or with accents, and else for none.

    Args:
        texts: the first thousand are looked at.

    Returns:
        Its name, "another script" or "another language"; None for English, and where too little tells.

    Example:
        >>> other_language(["Wo ist mein Paket?", "Ich möchte das nicht", "Rechnung"])
        'German'
        >>> other_language(["退款", "где мой заказ"]), other_language(["Zeitgeist", "my café"])
        ('another script', None)
    """
    counted = list(islice(texts, _MOST_TEXTS))
    votes = Counter(vote for text in counted if (vote := _language_of(text[:_MOST_CHARACTERS])))
    others = votes.total() - votes[_ENGLISH]
    if others < max(_LEAST_TEXTS, _LEAST_SHARE * len(counted)) or others <= votes[_ENGLISH]:
        return None
    return next(name for name, _ in votes.most_common() if name != _ENGLISH)


def _language_of(text: str) -> str | None:
    letters = [character for character in text if character.isalpha()]
    foreign = [character for character in letters if not character.isascii()]
    if 2 * sum(not unicodedata.name(c, "").startswith("LATIN") for c in foreign) > len(letters):
        return "another script"
    words = set(re.findall(r"[^\W\d_]+", text.casefold()))
    hits = Counter(language for word in words for language in _LANGUAGES.get(word, ()))
    if not hits:
        return _OTHER if foreign else None
    best = max(hits.values())
    return _ENGLISH if hits[_ENGLISH] == best else _named(hits, best)


def _named(hits: Counter[str], best: int) -> str:
    names: Sequence[str] = [language for language, count in hits.items() if count == best]
    return names[0] if len(names) == 1 else _OTHER
