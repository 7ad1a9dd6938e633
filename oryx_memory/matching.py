"""Keyword matching: caseless in every script and blind to width, NFKC and case folding on both sides.

`%`, `_`, quotes and operators are text. `Keyword.places` looks through a big text without folding it (which takes
25 times as long as reading it): a match is either there literally, ASCII case aside, or holds a character that
folding changes into part of the keyword, and there are few such characters.

NFKC: Unicode Standard Annex 15. Case folding: the Unicode Standard, section 3.13.
"""

import re
from collections.abc import Iterator

from oryx_memory.entry import BLANKS
from oryx_memory.errors import RejectedInput

# Where characters live that NFKC or case folding change, or that join the character before them.
# A test compares this with the Unicode data of the running Python.
UNSTABLE_RANGES = (
    (0x0080, 0x3400),
    (0xA000, 0xAC00),
    (0xD7B0, 0xD800),
    (0xF900, 0x11E00),
    (0x12400, 0x12500),
    (0x16000, 0x17000),
    (0x1B000, 0x1E000),
    (0x1E000, 0x1FC00),
    (0x2F800, 0x2FA20),
)


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

    def places(self, data: bytes, start: int, end: int) -> Iterator[int]:
        """Byte offsets, ascending, between `start` and `end` such that every match in the UTF-8 bytes has one of them
        between its line's start and its end; not every offset is a match.
        """
        body = data[start:end]
        if not set(self.folded).isdisjoint("\n\r\ufffd"):  # spans lines, or may stand for invalid bytes
            yield from (start + match.start() for match in re.finditer(rb"[^\r\n]+", body))
            return
        literal = self.folded.encode(errors="surrogatepass")
        lowered = body.lower()  # ASCII only
        variants = None if body.isascii() else _variants(self.folded)
        del body
        next_literal = lowered.find(literal)
        variant = variants.search(lowered) if variants else None
        while next_literal >= 0 or variant:
            if variant and (next_literal < 0 or variant.start() < next_literal):
                yield start + variant.start()
                assert variants is not None
                variant = variants.search(lowered, variant.end())
            else:
                yield start + next_literal
                next_literal = lowered.find(literal, next_literal + 1)


def _variants(folded: str) -> "re.Pattern[bytes] | None":
    """Finds each character that folding changes, or joins to the one before it, and that shares a part with the
    folded keyword.
    """
    from unicodedata import normalize

    wanted = re.compile("[" + re.escape("".join(sorted(set(normalize("NFKD", folded) + folded)))) + "]")
    pool = [chr(code) for first, end in UNSTABLE_RANGES for code in range(first, end)]
    # One call on all of them; the line feeds keep them from joining each other.
    parts = normalize("NFKD", fold("\n".join(pool))).split("\n")
    tails: dict[bytes, list[bytes]] = {}
    for char, part in zip(pool, parts, strict=True):
        if wanted.search(part) and (part != char or joins(char)):
            encoded = char.encode()
            tails.setdefault(encoded[:-1], []).append(re.escape(encoded[-1:]))
    if not tails:
        return None
    return re.compile(b"|".join(head + b"[" + b"".join(tail) + b"]" for head, tail in tails.items()))


def joins(char: str) -> bool:
    """Whether normalisation may join a character, itself stable, to the one before it."""
    from unicodedata import category

    return category(char)[0] == "M" or "\u1160" <= char <= "\u11ff" or "\U00016d63" <= char <= "\U00016d67"
