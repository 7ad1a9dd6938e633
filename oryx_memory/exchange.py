"""Memories as files of other kinds: md, jsonl, csv and notes, written and read.

What is written is read back as it was: each record has the line itself wherever content and time alone would not give
it. A line is believed only while it agrees with the content beside it, which a person may have edited.
A time with an offset becomes local in the zone that a reader is given (None: the system's).
"""

import csv
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import IO, Any, NamedTuple

from oryx_memory.document import BOM, MemoryDocument, is_blank, piece
from oryx_memory.entry import Entry, Retirement, Scope, as_record, is_key, is_tag, wall_clock
from oryx_memory.errors import FileProblem, OryxMemoryWarning, RejectedInput

FIELDS = ("id", "agent", "scope", "time", "content", "line", "tags", "key", "type")
RETIRED_FIELDS = ("retired_time", "retired_reason", "retired_run")


class Found(NamedTuple):
    """A record that was read: where it stands, and its entry, or None and why it cannot be taken."""

    where: str
    entry: Entry | None
    problem: str = ""


def from_record(record: Mapping[str, Any], zone: tzinfo | None = None) -> Entry:
    """The entry of a record, which needs a `content` or a `line`. Raises RejectedInput."""
    scope = _scope(record.get("scope"))
    retired = record.get("retired")
    why = None
    if retired:
        if not isinstance(retired, Mapping):
            raise RejectedInput("retired is no object")
        time = _time(retired.get("time"), zone)
        if time is None:
            raise RejectedInput("retired has no time")
        why = Retirement(time, _text(retired.get("reason")) or "", _text(retired.get("run")) or "")
    content, line = _text(record.get("content")), _text(record.get("line"))
    if line is not None:
        entry = Entry(line.strip("\r\n"), scope, why)
        if content is None or entry.content.strip() == content.strip():
            piece(entry, b"\n")
            if not entry.content and not entry.time:
                raise RejectedInput("the line is empty")
            return entry
    if content is None:
        raise RejectedInput("neither content nor line")
    tags, key = record.get("tags") or [], _text(record.get("key")) or None
    if isinstance(tags, str):
        tags = tags.replace(",", " ").split()
    if not isinstance(tags, list):
        raise RejectedInput(f"tags are a list of texts, not {tags!r}")
    tags = [str(tag).removeprefix("#") for tag in tags]
    time = _time(record.get("time"), zone)
    made = Entry.new(
        content, scope, time=time or datetime.min, tags=filter(is_tag, tags), key=key if key and is_key(key) else None
    )
    if time:
        return Entry(made.raw, scope, why)
    plain = Entry(f"- {made.content}", scope, why)
    return plain if plain.time is None else Entry(f"* {made.content}", scope, why)  # content that begins like a time


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise RejectedInput(f"not a text: {value!r}")


def _scope(value: Any) -> Scope:
    try:
        return Scope(str(value).lower()) if value else Scope.ARCHIVAL
    except ValueError:
        raise RejectedInput(f"scope is core or archival, not {value!r}") from None


def _time(value: Any, zone: tzinfo | None) -> datetime | None:
    if value is None or value == "":
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise RejectedInput(f"not a time: {value!r}") from None
    return wall_clock(moment, zone)


def read_md(data: bytes) -> Iterator[Found]:
    """The entries of a MEMORY.md, with their line numbers. Lines that stand in no section are counted in a warning; where
    there is no section, nothing can be taken.
    """
    document = MemoryDocument(data)
    if outside := _outside(document):
        if not document.layout.headings:
            headings = " nor ".join(scope.heading for scope in Scope)
            yield Found(str(outside[0]), None, f"in no section: neither {headings} is above it")
            return
        more = f" and {len(outside) - 1:,} more" if outside[1:] else ""
        warnings.warn(OryxMemoryWarning(f"line {outside[0]}{more} in no section; left out"), stacklevel=2)
    for scope in Scope:
        line, at = 1, 0
        for place in document.located(scope):
            line, at = line + data.count(b"\n", at, place.start), place.start
            yield Found(str(line), document.entry(place, scope))


def _outside(document: MemoryDocument) -> list[int]:
    """The numbers of the lines that are not blank and stand in no section."""
    places = [body for scope in Scope if (body := document.layout.body(scope))]
    places += [(heading.start, heading.body) for heading in document.layout.headings]
    found: list[int] = []
    end = 0
    for number, line in enumerate(document.data.splitlines(keepends=True), 1):
        end += len(line)
        if not is_blank(line.removeprefix(BOM)) and not any(start < end <= stop for start, stop in places):
            found.append(number)
    return found


def read_jsonl(lines: Iterable[bytes], zone: tzinfo | None = None) -> Iterator[Found]:
    """One JSON object a line; blank lines are passed over."""
    from msgspec import DecodeError
    from msgspec.json import decode

    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(BOM)
        if not line.strip():
            continue
        try:
            record = decode(line)
        except (DecodeError, UnicodeDecodeError) as error:
            yield Found(str(number), None, f"not JSON: {error}")
            continue
        except RecursionError:
            yield Found(str(number), None, "not JSON that can be read: too many brackets inside each other")
            continue
        yield _found(str(number), record, zone)


def read_csv(file: IO[str], zone: tzinfo | None = None) -> Iterator[Found]:
    """A table whose first row names the columns; only `content` or `line` must be among them."""
    csv.field_size_limit(sys.maxsize)  # of this process; a field may be as long as a line that was written by hand
    rows = csv.DictReader(file, strict=True)
    number = 1
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Found(str(number), None, f"not CSV: {error}")
            return
        given = {name: value for name, value in row.items() if name and value not in (None, "")}
        if time := given.pop("retired_time", None):
            given["retired"] = {"time": time, "reason": given.get("retired_reason"), "run": given.get("retired_run")}
        yield _found(str(number), given, zone)


def read_notes(folder: Path, zone: tzinfo | None = None) -> Iterator[Found]:
    """A folder of Markdown notes with front matter, by file name; the body is the content.

    The time is `time`, `created` or `date` of the front matter; `scope`, `tags`, `key`, `line` and `retired` count too.
    """
    import frontmatter

    for path in sorted(folder.glob("*.md")):
        try:
            note = frontmatter.loads(path.read_bytes().decode("utf-8-sig"))
        except Exception as error:  # whatever a hand-written YAML block makes the parser raise
            yield Found(path.name, None, f"cannot be read: {str(error).splitlines()[0]}")
            continue
        record = {name: note.metadata.get(name) for name in ("scope", "tags", "key", "line", "retired")}
        record["time"] = next((note.metadata[n] for n in ("time", "created", "date") if note.metadata.get(n)), None)
        yield _found(path.name, {**record, "content": note.content}, zone)


def _found(where: str, record: Any, zone: tzinfo | None) -> Found:
    if not isinstance(record, Mapping):
        return Found(where, None, "not an object")
    try:
        return Found(where, from_record(record, zone))
    except RejectedInput as error:
        return Found(where, None, str(error))


def write_csv(entries: Iterable[Entry], agent: str | None, file: IO[str]) -> None:
    """A table of the entries, with a header."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*FIELDS, *RETIRED_FIELDS))
    for entry in entries:
        record = as_record(entry, agent)
        retired = record.get("retired", {})
        record["tags"] = " ".join(record["tags"])
        writer.writerow([*(record[name] for name in FIELDS), *(retired.get(n[8:]) for n in RETIRED_FIELDS)])


def write_notes(entries: Iterable[Entry], folder: Path) -> int:
    """One Markdown note with front matter an entry, in a new or empty folder; returns how many. Raises FileProblem."""
    import frontmatter

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileProblem(folder, "is not empty; notes are written into a new or empty folder")
        number = 0
        for number, entry in enumerate(entries, 1):
            path = folder / f"{number:06}-{_slug(entry.prose)}.md"
            path.write_bytes(
                frontmatter.dumps(frontmatter.Post(entry.content, **_front_matter(entry))).encode() + b"\n"
            )
    except FileProblem:
        raise
    except OSError as error:
        raise FileProblem(error.filename or folder, str(error.strerror).lower()) from error
    return number


def _front_matter(entry: Entry) -> dict[str, Any]:
    record = as_record(entry, None)
    content = record["content"]
    names = ("id", "scope", "time", "tags", "key", "type", "retired")
    kept = {name: record[name] for name in names if record.get(name)}
    try:
        made = from_record({**kept, "content": content.strip()})
    except RejectedInput:  # empty, or longer than what we would write
        made = None
    if made is None or made.raw != entry.raw:
        kept["line"] = entry.raw
    return kept


def _slug(text: str) -> str:
    words = "".join(char if char.isalnum() else "-" for char in text[:60]).strip("-")
    return "-".join(filter(None, words.split("-")))[:40] or "note"
