"""What ranked recall knows without a file: the tokens of a text, and how the scores of several routes add up.

A text and a query are cut by the same rules, so that a memory is found by its own words. A token holds letters,
digits, `#%+-./:@_` and what is not ASCII; in double quotes none of these is FTS5 syntax. So an entry is indexed as its
tokens joined by blanks (`written`) in an FTS5 table whose `tokenize` is TOKENIZE, which keeps each of them whole, and a
query is the MATCH expression `"token" OR "token" …`. BM25 needs what FTS5 keeps with `detail = full`, its default.

Terms: BM25 and token as in Manning, Raghavan, Schütze, Introduction to Information Retrieval; NFKC: Unicode Annex 15.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import exp, fsum
from typing import TYPE_CHECKING, TypeVar
from unicodedata import normalize

from oryx_memory.dates import DateSpan as DateSpan
from oryx_memory.dates import date_score as date_score
from oryx_memory.dates import date_spans as date_spans
from oryx_memory.dates import undated as undated
from oryx_memory.entry import one_line, trailer

if TYPE_CHECKING:
    from Stemmer import Stemmer

# Not unicode61: it cuts Thai and Hindi at their vowel signs. `ascii` takes all that is not ASCII as part of a token.
TOKENIZE = "ascii tokenchars '#%+-./:@_'"
SHORTEST = 4  # letters of a word that may be a slip for another
LONGEST = 64  # code points of a token; what is longer is a blob, known by its start
MOST_SEARCHED = 1000  # tokens of one query; nobody asks so much, and a pasted file would take seconds
NEWNESS = 0.05  # enough to break ties; recency as a route of its own halves the quality
NEIGHBOURS = 0.25  # of the score of an entry goes to the next in time, half of that to the second next
FOOTPRINT_CHARS = 200  # code points of each side
_FORGETS = 24 * 3600.0  # seconds between neighbours after which that share has fallen to 1/e

# Characters that stand for relations and not for things: pronouns, particles, prepositions, question words, and the
# Korean particles. Each is in a large part of all sentences, so as a token of its own it finds nearly everything and
# adds noise to the sum. In bigrams they stay: 我们, 没有, 什么.
GRAMMAR = frozenset(
    "的了是我你您他她它们这那在有和与及或就都也还又不没吗呢吧啊嘛么什怎哪很着得地被把给让对从为于以而但之其个一要会"
    "們這個還沒嗎麼著給讓對從為與"
    "은는이가을를의에도로와과만"
)
STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are arent as at be because been before being both but by can cant cannot
    could couldnt did didnt do does doesnt doing dont down during each few for from further had hadnt has hasnt have
    havent having he her here hers herself him himself his how i if in into is isnt it its itself just let me more most
    my myself no nor not of off on once only or other our ours ourselves out over own please same she should shouldnt
    so some such than that the their theirs them themselves then there these they this those through to too under until
    up us very was wasnt we were werent what when where which while who whom why will with wont would wouldnt you your
    yours yourself yourselves
    """.split()  # noqa: SIM905 - in quotes and commas nobody would read it
)

# Long ranges are avoided here: compiling a set takes time for each code point in it, 2 ms for all of Han and Hangul.
_LATIN = "[0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]"  # and digits
_STEMMED = {  # the other scripts that are stemmed, and the language of most texts in them
    "russian": "[\u0400-\u052f]",
    "greek": "[\u0370-\u03ff\u1f00-\u1fff]",
    "arabic": "[\u0620-\u0669\u066e-\u06d3]",
    "hindi": "[\u0900-\u0963\u0966-\u097f]",
}
_WORD = rf"{_LATIN}+(?:['\u2019]{_LATIN}+)*"
_CHUNKS = re.compile(
    # A word or an identifier: @scope/pkg, .env, C++, 50%, std::vector, 4,000.
    rf"[.@]?{_WORD}(?:(?:[-_./:@+#\\]{{1,3}}|,(?=[0-9]{{3}}(?![0-9]))){_WORD})*"
    rf"(?:\+\+|[+#%](?!{_LATIN}))?"
    # No blanks between words: Han and kana, Hangul (its particles are glued to the words); Thai to Burmese, Khmer.
    r"|[^\W\x00-\u2fff]+|[\u0e01-\u0e4e\u0e80-\u109f\u1780-\u17d3]+"
    rf"|{'|'.join(letters + '+' for letters in _STEMMED.values())}"
    # All other scripts, some with vowel signs that are no word characters; each arrow and emoji.
    r"|(?:(?=\w)[\u0250-\u036f\u0530-\u2fff]|[\u0591-\u05c7\u0980-\u0dff])+|[\u2190-\u2bff\U0001f000-\U0001faff]"
)
_WORDS = re.compile(_WORD)
_SYLLABLES = re.compile("[\u0e01-\u33ff]")  # kana, Thai and the like, which alone mean nothing, unlike Han and Hangul
_UNSPACED = (("\u3000", "\U0001efff"), ("\u0e01", "\u109f"), ("\u1780", "\u17d3"), ("\U00020000", "\U0010ffff"))
_SEGMENTS = re.compile(r"[/:@]+")
_HUMPS = re.compile(r"[0-9]+|[A-Z]+(?![a-z])|[A-Z]?[^A-Z0-9]+")  # camelCase, HTTPServer, utf8
_SUFFIX = re.compile(r"'(?:s|ll|d|re|ve|m)\Z", re.IGNORECASE)
_ACCENTS = re.compile("[\u0300-\u036f]+")
_FOOTPRINT = re.compile(r"触发「[^\n]*」⇒[^\n]*")
_NO_TRAILER = str.maketrans("#^", "＃＾")

_KNOWN_LIMIT = 50_000
_known: dict[str, tuple[str, ...]] = {}  # tokens of the words that were met, since cutting one takes microseconds
_stemmers: dict[str, "Stemmer"] = {}

K = TypeVar("K", int, str)


def tokens(text: str) -> list[str]:
    """What is indexed of a text: its tokens in order, with repetitions.

    Words are folded and stemmed; identifiers come whole and in parts; runs of Chinese, Japanese, Korean, Thai and the
    like as overlapping bigrams and single characters. A change of script ends a word. Stop words stay: they make up the
    length that BM25 divides by, and a query of nothing else can be answered.
    """
    found: list[str] = []
    if len(_known) > _KNOWN_LIMIT:
        _known.clear()
    for chunk in _CHUNKS.findall(normalize("NFKC", text)):
        known = _known.get(chunk)
        if known is not None:
            found += known
        elif _is_unspaced(chunk[0]):
            chars = list(chunk)
            found += map(str.__add__, chars, chars[1:])
            found += chars if len(chars) == 1 or not _SYLLABLES.search(chunk) else _SYLLABLES.sub("", chunk)
        else:
            known = _known[chunk] = tuple(_identifier(chunk) if _WORDS.search(chunk) else [_stemmed_run(chunk)])
            found += known
    return found


def _is_unspaced(char: str) -> bool:
    """Whether a chunk that begins so is a run of a script without blanks between words."""
    return any(first <= char <= last for first, last in _UNSPACED)


def query_tokens(text: str) -> list[str]:
    """What is searched for: the tokens of a query without stop words and grammar characters, in order, each once, and
    once more at the end if the query says it twice; at most MOST_SEARCHED. All tokens if that leaves nothing.
    """
    counts = Counter(tokens(text))
    chosen = [token for token in counts if token not in STOP_WORDS and token not in GRAMMAR] or list(counts)
    return (chosen + [token for token in chosen if counts[token] > 1])[:MOST_SEARCHED]


def respellings(word: str, vocabulary: Iterable[str]) -> list[str]:
    """The tokens of a vocabulary that a token of SHORTEST or more letters may be a slip for: one letter more, less or other,
    or two neighbours swapped. For tokens of a query that the memory does not have.
    """
    if len(word) < SHORTEST or not word.isalpha():
        return []
    return [other for other in vocabulary if abs(len(other) - len(word)) < 2 and _one_edit_apart(word, other)]


def _one_edit_apart(one: str, other: str) -> bool:
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    one, other = one[start:], other[start:]
    return one != other and (
        one[1:] in (other, other[1:]) or one == other[1:] or (one[2:] == other[2:] and one[:2] == other[1::-1])
    )


def written(text: str) -> str:
    """A text as it goes into the FTS5 column: its tokens, joined by blanks."""
    return " ".join(tokens(text))


def _identifier(word: str) -> Iterator[str]:
    """The tokens of a word or an identifier: whole, its segments (a/b), its words."""
    word = word.replace("\\", "/").replace("\u2019", "'").replace(",", "")
    words = _WORDS.findall(word)
    if words != [word]:
        yield _folded(word)
        segments = [segment for segment in _SEGMENTS.split(word) if segment]
        if len(segments) > 1:
            yield from (_folded(segment) for segment in segments if segment not in words)
    for part in words:
        yield from _word(part)


def _word(word: str) -> Iterator[str]:
    """The tokens of letters and digits: whole, and what an inner capital or digit divides it into."""
    word = _SUFFIX.sub("", word)
    yield _stem(_folded(word))
    humps = _HUMPS.findall(word)
    if len(humps) > 1:
        yield from (_stem(_folded(hump)) for hump in humps if len(hump) > 1)


def _folded(word: str) -> str:
    """A Latin word as it is compared: without case, accents (café, cafe) and apostrophes."""
    if not word.isascii():
        word = normalize("NFC", _ACCENTS.sub("", normalize("NFD", word)))
    return word.casefold().replace("'", "")[:LONGEST]


def _stem(word: str) -> str:
    return word if word in STOP_WORDS else _stemmer("english").stemWord(word)


def _stemmed_run(run: str) -> str:
    folded = run.casefold()[:LONGEST]
    language = next((name for name, letters in _STEMMED.items() if re.match(letters, folded)), None)
    # Of Arabic vowel signs alone the stemmer leaves nothing, and "" would be no token to FTS5.
    return (_stemmer(language).stemWord(folded) if language else "") or folded


def _stemmer(language: str) -> "Stemmer":
    if language not in _stemmers:
        from Stemmer import Stemmer  # not on the way of append, load and keyword recall

        _stemmers[language] = Stemmer(language)
    return _stemmers[language]


def newness(time: datetime | None, newest: datetime, oldest: datetime) -> float:
    """How new a memory is among the others: 1 for the newest, 0 for the oldest and for one without a time."""
    if time is None or newest <= oldest:
        return 0.0
    return min(1.0, max(0.0, (time - oldest) / (newest - oldest)))


def neighbours(
    scores: Mapping[K, float], places: Mapping[K, int], times: Mapping[K, datetime | None]
) -> dict[K, float]:
    """The scores of one route with what each entry gives to those beside it: the answer often stands next to the words
    that were asked with. `places` numbers the entries in order of the memory: at least those of `scores` and the two
    before and behind each. The share falls with the time between them, and with the score: sure hits give more.
    """
    at = {place: key for key, place in places.items()}
    best = max(scores.values(), default=0.0)
    spread = dict(scores)
    for key, score in scores.items():
        for step in (-2, -1, 1, 2):
            other = at.get(places[key] + step)
            if other is not None and best > 0:
                share = NEIGHBOURS / abs(step) * score / best * _nearness(times[key], times[other])
                spread[other] = spread.get(other, 0.0) + share * score
    return spread


def _nearness(one: datetime | None, other: datetime | None) -> float:
    """1 for the same time, falling to 0; 0 where one has none."""
    return exp(-abs((one - other).total_seconds()) / _FORGETS) if one and other else 0.0


def fuse(
    routes: Mapping[str, Mapping[K, float]], weights: Mapping[str, float], newness: Mapping[K, float]
) -> list[tuple[K, float]]:
    """The keys that a route gives more than 0, with their scores, best first.

    Each route is divided by its own maximum and multiplied by its weight; a key's sum of these is multiplied by
    1 + NEWNESS times its `newness` (0 to 1; 0 where it has none). Of equal scores the newer is first, then the later key.
    """
    shares: dict[K, list[float]] = {}
    for name, scores in routes.items():
        best = max(scores.values(), default=0.0)
        for key, score in scores.items():
            if score > 0:
                shares.setdefault(key, []).append(weights[name] * score / best)
    # fsum: rounded once, so the order of the routes cannot decide between two.
    total = {key: fsum(parts) * (1 + NEWNESS * newness.get(key, 0.0)) for key, parts in shares.items()}
    return sorted(total.items(), key=lambda item: (item[1], newness.get(item[0], 0.0), item[0]), reverse=True)


def is_footprint(content: str) -> bool:
    """Whether an entry's content is a footprint, `触发「user message」⇒ reply` on one line: it echoes a question."""
    return bool(_FOOTPRINT.fullmatch(content))


def footprint(user_message: str, reply: str) -> str:
    """The content of a footprint: what was said and what was replied, each flattened to one line and cut at
    FOOTPRINT_CHARS. Nothing at its end is a tag or a key: `#` and `^` become full-width there, which search takes for the
    same. A lone surrogate becomes U+FFFD, so that every text has its footprint.
    """
    line = f"触发「{_side(user_message)}」⇒ {_side(reply)}"
    start, _, _ = trailer(line)
    return line[:start] + line[start:].translate(_NO_TRAILER)


def _side(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    flat = one_line(whole.replace("\t", " "))
    return f"{flat[:FOOTPRINT_CHARS]}…" if len(flat) > FOOTPRINT_CHARS else flat or "（空）"
