"""Keyword matching: caseless in every script and blind to width, NFKC and case folding on both sides.

`%`, `_`, quotes and operators are text. `Keyword.lines` looks through a big text without folding it (which takes
25 times as long as reading it). A match is there literally, ASCII case aside, but where a character stands that
folding changes into a part of the keyword; so the part that no such character in the text can have made is searched
for as bytes, and only the lines that have it are folded.

NFKC: Unicode Standard Annex 15. Case folding: the Unicode Standard, section 3.13.
"""

import re
from collections.abc import Iterator
from heapq import merge

from oryx_memory.document import line_at
from oryx_memory.entry import BLANKS
from oryx_memory.errors import RejectedInput

# Where characters live that NFKC or case folding change, or that join the character before them.
# A test compares this with the Unicode data of the running Python.
UNSTABLE_RANGES = (
    (0x0080, 0x3400),
    (0xA000, 0xAC00),
    (0xD7B0, 0xD800),
    (0xF900, 0x12000),
    (0x12400, 0x12500),
    (0x16000, 0x17000),
    (0x1B000, 0x1FC00),
    (0x2F800, 0x2FA20),
)
_NO_LEADS = bytes(range(0xC2))


def fold(text: str) -> str:
    """`text` as it is compared: NFKC, then full case folding."""
    if text.isascii():
        return text.lower()
    from unicodedata import normalize

    return normalize("NFKC", text).casefold()


class Keyword:
    """A keyword to look for. Raises RejectedInput for one that is empty or blank."""

    def __init__(self, keyword: str) -> None:
        self.folded = fold(keyword)
        if not self.folded.strip(BLANKS):
            raise RejectedInput("nothing to look for: the keyword is empty or blank")

    def matches(self, text: str) -> bool:
        """Whether a text has the keyword in it."""
        return self.folded in fold(text)

    def lines(self, data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the lines are, in order, that may hold the keyword, between two offsets of UTF-8 bytes: all that do."""
        if not set(self.folded).isdisjoint("\n\r\ufffd"):  # spans lines, or may stand for invalid bytes
            yield from (match.span() for match in re.compile(rb"[^\r\n]+").finditer(data, start, end))
            return
        lowered = data.lower()  # ASCII only
        done = start
        for at in self._candidates(lowered, start, end):
            if at >= done:
                first, done = line_at(data, at, start, end)
                if self.matches(data[first:done].decode(errors="replace")):
                    yield first, done

    def _candidates(self, lowered: bytes, start: int, end: int) -> Iterator[int]:
        """Offsets, ascending; each line with a match has at least one of them."""
        variants = {} if lowered.isascii() else _variants_in(lowered, start, end, self.folded)
        run = _certain_run(self.folded, set().union(*variants.values()))
        if run:
            return _finds(lowered, run.encode(errors="surrogatepass"), start, end)
        literal = _finds(lowered, self.folded.encode(errors="surrogatepass"), start, end)
        pattern = re.compile(b"|".join(map(re.escape, variants)))
        return merge(literal, (match.start() for match in pattern.finditer(lowered, start, end)))


def _finds(data: bytes, needle: bytes, start: int, end: int) -> Iterator[int]:
    at = data.find(needle, start, end)
    while at >= 0:
        yield at
        at = data.find(needle, at + 1, end)


def _certain_run(folded: str, touched: set[str]) -> str:
    """The longest part of a folded keyword that each match holds literally, ASCII case aside: the part that none of
    the `touched` characters, which folding may have made, belongs to. Empty if there is none.
    """
    from unicodedata import normalize

    runs = [""]
    for char in folded:
        if touched.isdisjoint(normalize("NFKD", char) + char):
            runs[-1] += char
        else:
            runs.append("")
    return max(runs, key=lambda run: len(run.encode(errors="surrogatepass")))


def _variants_in(data: bytes, start: int, end: int, folded: str) -> dict[bytes, set[str]]:
    """The characters in the data that folding changes, or joins to the one before them, and that share a part with
    the folded keyword: their UTF-8 bytes, and the parts that folding makes of them.
    """
    from unicodedata import normalize

    wanted = re.compile("[" + re.escape("".join(sorted(set(normalize("NFKD", folded) + folded)))) + "]")
    pool = [chr(code) for code in _unstable_in(data)]
    # One call on all of them; the line feeds keep them from joining each other.
    parts = normalize("NFKD", fold("\n".join(pool))).split("\n") if pool else []
    made = {
        char.encode(): set(part)
        for char, part in zip(pool, parts, strict=True)
        if wanted.search(part) and (part != char or joins(char))
    }
    # One pattern for each first byte: a literal start lets the search skip.
    tails: dict[bytes, dict[bytes, list[bytes]]] = {}
    for encoded in made:
        tails.setdefault(encoded[:1], {}).setdefault(encoded[1:-1], []).append(re.escape(encoded[-1:]))
    found: set[bytes] = set()
    for first, groups in tails.items():
        endings = b"|".join(middle + b"[" + b"".join(last) + b"]" for middle, last in groups.items())
        found.update(re.compile(first + b"(?:" + endings + b")").findall(data, start, end))
    return {encoded: made[encoded] for encoded in found}


def _unstable_in(data: bytes) -> Iterator[int]:
    """The code points of UNSTABLE_RANGES that may be in the UTF-8 data, going by the first bytes that are there."""
    leads = set(data.translate(None, _NO_LEADS))
    for first, end in UNSTABLE_RANGES:
        at = first
        while at < end:
            block = 64 if at < 0x800 else 4096  # what one first byte, or two of four, can begin
            stop = min(end, (at // block + 1) * block)
            head = chr(at).encode()[: 2 if at >= 0x10000 else 1]
            if head[0] in leads and (len(head) == 1 or head in data):
                yield from range(at, stop)
            at = stop


def joins(char: str) -> bool:
    """Whether normalisation may join a character, itself stable, to the one before it."""
    from unicodedata import category

    return category(char)[0] == "M" or "\u1160" <= char <= "\u11ff" or "\U00016d63" <= char <= "\U00016d67"
