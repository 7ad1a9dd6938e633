"""The write path: how bytes reach a memory's files so that nothing acknowledged is lost.

Every write holds the memory's lock. `append` is one O_APPEND write, fsynced and then verified with the descriptor
still open; `replace` writes a temporary file, exchanges it with the old one and looks at what came out. Both redo
their work when a program that takes no lock wrote in between. Before a write the lock file holds the intention;
whoever locks next removes what a killed writer left: a torn tail of exactly that intention, and our temporary files.

POSIX, one host. No promise on network file systems.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from oryx_memory.document import Heading, Layout, headless, scan
from oryx_memory.entry import Scope
from oryx_memory.errors import FileProblem, LockTimeout, OryxMemoryWarning

ROUNDS = 3  # tries against programs that take no lock
CHUNK = 1 << 20
SETTLES = 2_000_000_000  # nanoseconds
_NEWLINES = {b"\n": "lf", b"\r\n": "crlf", b"\r": "cr"}
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO must not hang us
_WRITE = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW

Tail = Callable[[Layout, bytes], bytes | None]

_held: set[int] = set()


def _close_in_child() -> None:
    # A forked child shares the lock's open file description: closing its copy leaves the lock with the parent,
    # and the lock ends with the parent even if the child lives on.
    for descriptor in list(_held):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


class Lock:
    """The advisory lock of one memory, a context manager; `path` is its lock file, never unlinked.

    `guards` are the files that it guards, links followed, all in one folder; what a killed writer left there is
    made whole on entering. Raises LockTimeout after `timeout` seconds, and FileProblem.
    """

    def __init__(self, path: Path, guards: Sequence[Path], timeout: float = 10.0) -> None:
        self.path = path
        self.guards = {guarded.name: guarded for guarded in guards}
        self.timeout = timeout
        self._descriptor = -1
        self._known = ""

    def __enter__(self) -> "Lock":
        self._take()
        try:
            self._make_whole()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _take(self) -> None:
        with _problems(self.path):
            try:
                if self.path.parent.parent.is_dir():  # a workspace that is gone is not made anew
                    make_folder(self.path.parent)
                self._descriptor = self._acquire()
            except FileNotFoundError as error:
                raise FileProblem(self.path, "its folder is gone") from error

    def _acquire(self) -> int:
        give_up = time.monotonic() + self.timeout
        pause = 0.001
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            _held.add(descriptor)
            try:
                adopt(descriptor, self.path.parent)
                while True:
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() >= give_up:
                            raise LockTimeout(self.path, self.timeout) from None
                        time.sleep(min(pause * (0.5 + os.urandom(1)[0] / 512), max(0.0, give_up - time.monotonic())))
                        pause = min(pause * 2, 0.005)  # a writer in a loop leaves only moments free
                if _same_file(descriptor, self.path):
                    return descriptor
            except BaseException:
                self._close(descriptor)
                raise
            self._close(descriptor)  # somebody deleted the lock file: lock the one that stands there now

    def _release(self) -> None:
        self._close(self._descriptor)
        self._descriptor = -1

    @staticmethod
    def _close(descriptor: int) -> None:
        _held.discard(descriptor)
        with contextlib.suppress(OSError):
            # Closing alone is not enough while a child that was just forked has the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def keep(self) -> None:
        """Make sure that the lock is still ours: where its file was deleted, take the lock again."""
        if not _same_file(self._descriptor, self.path):
            self._release()
            self._take()
            self._make_whole()

    def intend(self, header: str, payload: bytes = b"") -> None:
        """Write down what is about to be done; `header` is one line."""
        record = f"{header} {len(payload)}\n".encode(errors="surrogateescape") + payload
        os.ftruncate(self._descriptor, 0)
        written = 0
        while written < len(record):
            written += os.pwrite(self._descriptor, record[written:], written)

    def done(self) -> None:
        """Forget the intention."""
        os.ftruncate(self._descriptor, 0)

    def know(self, path: Path, stamp: str, layout: Layout) -> None:
        """Instead of the intention, write down what a file is like now, for the next append to it."""
        headings = ",".join(f"{heading.scope}:{heading.start}:{heading.body}" for heading in layout.headings)
        self._known = (
            f"known {_quoted(path.name)} {stamp} {_NEWLINES[layout.newline]} {layout.conflict:d} {headings or '-'}"
        )
        self.intend(self._known)

    def known(self, path: Path) -> tuple[str, Layout] | None:
        """The stamp and the layout of a file after our last write, if that was an append to it."""
        words = self._known.split(" ")
        if words[1:2] != [_quoted(path.name)]:
            return None
        try:
            _, _, stamp, newline, conflict, headings = words
            places = (heading.split(":") for heading in headings.split(",") if heading != "-")
            layout = Layout(
                int(stamp.split(":")[2]),
                tuple(Heading(Scope(scope), int(start), int(body)) for scope, start, body in places),
                next(end for end, name in _NEWLINES.items() if name == newline),
                b"\n" if newline != "cr" else b"\r",
                conflict == "1",
            )
        except (ValueError, IndexError, StopIteration):  # not what we wrote
            return None
        return stamp, layout

    def _make_whole(self) -> None:
        record = _read_all(self._descriptor)
        header, end, payload = record.partition(b"\n")
        words = header.decode(errors="surrogateescape").split(" ")
        self._known = " ".join(words[:-1]) if words[0] == "known" and end and not payload else ""
        if record and not self._known:
            name = words[1] if len(words) > 1 else ""
            plain = self.guards.get(name)  # names were not quoted once
            target = plain or self.guards.get(_unquoted(name))
            if target and words[-1] == str(len(payload)):
                if words[0] == "append" and len(words) == 4:
                    self._remove_torn_tail(target, int(words[2]), payload)
                elif words[0] == "replace" and len(words) == 6:
                    temporary = target.with_name(words[2] if plain else _unquoted(words[2]))
                    self._finish_replace(target, temporary, old=words[3], new=words[4])
            self.done()
        for path in self.guards.values():
            for leftover in _leftovers(path):
                leftover.unlink(missing_ok=True)

    def _remove_torn_tail(self, path: Path, offset: int, payload: bytes) -> None:
        with contextlib.suppress(OSError), _opened(path, _WRITE) as descriptor:
            if 0 < os.fstat(descriptor).st_size - offset < len(payload):
                tail = os.pread(descriptor, len(payload), offset)
                if payload.startswith(tail):
                    _take_back(descriptor, offset, tail)

    def _finish_replace(self, path: Path, temporary: Path, *, old: str, new: str) -> None:
        """A writer was killed around its exchange. What lies in the temporary file is ours (drop it) or what we
        took out and read before (drop it), or what a foreign program wrote in that moment: that must live on.
        """
        try:
            inside, current = os.stat(temporary), os.stat(path)
        except FileNotFoundError:
            return
        if _identity(inside) == new or _stamp(inside) == old:
            temporary.unlink(missing_ok=True)
        elif _identity(current) == new and _exchange(temporary, path):
            temporary.unlink(missing_ok=True)
            _warn(f"{path}: another program changed it during an interrupted change of ours; its version was kept")
        else:
            _keep_found(path, temporary)


def adopt(made: int | Path, folder: Path) -> None:
    """What root makes belongs to the owner of the folder that it is in, or a cron job would shut the owner out."""
    if os.geteuid() == 0:
        status = os.stat(folder)
        if (status.st_uid, status.st_gid) != (0, 0):
            os.chown(made, status.st_uid, status.st_gid)


def make_folder(path: Path) -> bool:
    """Make a folder, and those above it; False if it is there. Raises OSError."""
    if path.is_dir():
        return False
    if not path.parent.is_dir():
        make_folder(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_dir():
            return False
        raise
    adopt(path, path.parent)
    return True


def resolve(path: Path, root: Path) -> Path:
    """The file that `path` stands for, links followed. `path` itself may be missing.

    Raises FileProblem where a link leads out of the folder `root` or to nothing.
    """
    with _problems(path):
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(root)):
            raise FileProblem(path, f"is a link out of the workspace, to {real}; refused")
        if path.is_symlink() and not real.exists():
            raise FileProblem(path, f"is a link to {real}, which does not exist")
        return real


def read(path: Path) -> bytes | None:
    """The whole file, or None where there is none. Raises FileProblem."""
    try:
        with _problems(path), _opened(path, _READ) as descriptor:
            return _read_all(descriptor)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def reader(path: Path) -> Iterator[Callable[..., Iterator[bytes]]]:
    """For a file that is not to be held whole: a function that gives its bytes from one offset (0) to another (the
    end), chunk by chunk. There is none to read where the file is missing. Raises FileProblem.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(_problems(path))
        try:
            descriptor = held.enter_context(_opened(path, _READ))
        except FileNotFoundError:
            yield lambda *_: iter(())
        else:
            yield partial(_chunks, descriptor)


def contains(path: Path, needles: Sequence[bytes]) -> bool:
    """Whether any of the needles is in the file, which is read chunk by chunk. Raises FileProblem."""
    keep = max(map(len, needles), default=1) - 1
    try:
        with _problems(path), _opened(path, _READ) as descriptor:
            before = b""
            for chunk in _chunks(descriptor):
                data = before + chunk
                if any(needle in data for needle in needles):
                    return True
                before = data[len(data) - keep :] if keep else b""
    except FileNotFoundError:
        pass
    return False


def stamp(path: Path) -> str:
    """A text that changes when the file is written or replaced; `-` where there is none."""
    try:
        return _stamp(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return "-"


def settled(stamps: str) -> str | None:
    """Stamps of files, parted by blanks, or None while one of the files is so new, by its own clock, that a further
    write might not change its stamp: file systems count time in steps of up to 2 seconds.
    """
    times = map(int, re.findall(r"(?<!\S)\d+:\d+:\d+:(\d+)(?!\S)", stamps))
    return stamps if max(times, default=0) < time.time_ns() - SETTLES else None


def append(
    lock: Lock,
    path: Path,
    pieces: Callable[[bytes], Sequence[bytes]],
    tail: Tail,
    found: Callable[[str], None] = lambda _: None,
) -> Sequence[bytes]:
    """Add whole lines at the end of a file, which is made if it is missing. Durable when it returns.

    `pieces` gives, for a newline style, what to add: each one or more whole lines. `tail` gives the bytes to write
    for a layout and the joined pieces, or None where they do not belong at the end. `found` is told the stamp of a
    file that is not as our last append left it; one that is need not be scanned. Returns the pieces that are
    not in the file for that reason, to be added by `replace`. Raises FileProblem; then nothing is acknowledged.
    """
    missing: Sequence[bytes] | None = None
    should: Mapping[bytes, int] = {}  # how often each piece shall be in the file, once a round has failed
    for _ in range(ROUNDS):
        lock.keep()
        try:
            with _problems(path), _opened(path, _WRITE | os.O_APPEND) as descriptor:
                layout = _layout(lock, path, descriptor, found)
                if missing is None:
                    missing = pieces(layout.newline)
                elif should:  # another program may have brought in what the last round missed
                    missing = _lacking(_read_all(descriptor), should)
                payload = tail(layout, b"".join(missing))
                if payload is None:
                    return missing
                _refuse_unsafe(descriptor, path)
                if layout.conflict:
                    warn_of_conflict(path)
                should = _append_verified(lock, path, descriptor, layout, missing, tail, should)
                if not should:
                    return ()
        except FileNotFoundError:
            layout = scan(())
            missing = pieces(layout.newline) if missing is None else missing
            payload = tail(layout, b"".join(missing))
            if payload is None or create(path, payload):
                return missing if payload is None else ()
    raise _contended(path)


def replace(lock: Lock, path: Path, make: Callable[[bytes], bytes]) -> None:
    """Give a file the content that `make` gives for its content. Durable when it returns.

    `make` is called again with the newer content where a program that takes no lock wrote meanwhile; equal content
    is not written. A missing file is empty and is made. Raises FileProblem.
    """
    for _ in range(ROUNDS):
        lock.keep()
        old = read(path)
        new = make(old or b"")
        if new == (old or b""):
            return
        if create(path, new) if old is None else _replace_verified(lock, path, old, new):
            return
    raise _contended(path)


def create(path: Path, data: bytes) -> bool:
    """Make a file with this content unless there is one: False then. Durable when it returns."""
    with _problems(path):
        temporary = _write_temporary(path, data, None)
        try:
            if not _rename_without_replacing(temporary, path):
                return False
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
        return True


def warn_of_conflict(path: Path) -> None:
    """Say that git left conflict markers in a file."""
    _warn(f"{path}: has git conflict markers (<<<<<<<); kept as they are, resolve them by hand")


def _layout(lock: Lock, path: Path, descriptor: int, found: Callable[[str], None]) -> Layout:
    """What an append must know of the file: what we knew, or a scan where another program has written since."""
    stamp = _stamp(os.fstat(descriptor))
    known = lock.known(path)
    if known and known[0] == stamp:
        return known[1]
    found(stamp)
    return scan(_chunks(descriptor))


def _append_verified(
    lock: Lock,
    path: Path,
    descriptor: int,
    layout: Layout,
    pieces: Sequence[bytes],
    tail: Tail,
    should: Mapping[bytes, int],
) -> Mapping[bytes, int]:
    """Write the pieces at the end of a file that has that layout. Where they are not all in the file then, return how
    often each shall be there, which after a first round is what `should` says.
    """
    payload = tail(layout, b"".join(pieces)) or b""
    size = layout.size
    lock.intend(f"append {_quoted(path.name)} {size}", payload)
    written = os.write(descriptor, payload)
    offset = os.lseek(descriptor, 0, os.SEEK_CUR) - written
    try:
        if written < len(payload):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        # Never retried as success: after a failed fsync the kernel may have dropped the pages.
        _take_back(descriptor, offset, payload[:written])
        lock.done()
        raise
    before = os.pread(descriptor, offset, 0) if offset != size else b""
    if offset != size and should and not _lacking(before, should):
        # A program without the lock came first, and has brought in what the last round missed.
        _take_back(descriptor, offset, payload)
        should = {}
    elif offset != size and tail(scan((before,)), b"".join(pieces)) != payload:
        # A program without the lock came first: ours is glued to its line, or outside of its section.
        _take_back(descriptor, offset, payload)
        should = {piece: _count(before, piece) + count for piece, count in Counter(pieces).items()}
    elif _same_file(descriptor, path) and os.pread(descriptor, written, offset) == payload:
        now = os.fstat(descriptor)
        if now.st_size == size + written and headless(payload):
            lock.know(path, _stamp(now), layout)
            return {}
        should = {}
    else:
        # Where another file took its place, equal lines of the one that we wrote to tell how many there should be.
        before = b"" if _same_file(descriptor, path) else _read_all(descriptor)
        should = {piece: max(_count(before, piece), count) for piece, count in Counter(pieces).items()}
        if not _lacking(read(path) or b"", should):
            should = {}
    lock.done()
    return should


def _lacking(data: bytes, should: Mapping[bytes, int]) -> list[bytes]:
    """The pieces that a file does not have as often as it should."""
    return [piece for piece, count in should.items() for _ in range(count - _count(data, piece))]


def _count(data: bytes, piece: bytes) -> int:
    body = piece.rstrip(b"\r\n")
    return len(re.findall(rb"(?:\A|(?<=[\r\n]))" + re.escape(body) + rb"(?=[\r\n]|\Z)", data))


def _replace_verified(lock: Lock, path: Path, old: bytes, new: bytes) -> bool:
    """Exchange the old file for a new one and look at what came out. False where that is not what was read: then
    the other program's version lives, and the work has to be done again.
    """
    # Another program may take the file away at any moment, to put another in its place.
    with contextlib.suppress(FileNotFoundError), _problems(path):
        temporary = _write_temporary(path, new, path)
        try:
            with _opened(path, _READ) as descriptor:
                _refuse_unsafe(descriptor, path)
                if _read_all(descriptor) != old:
                    return False
                before = _stamp(os.fstat(descriptor))
            ours = _identity(os.stat(temporary))
            lock.intend(f"replace {_quoted(path.name)} {_quoted(temporary.name)} {before} {ours}")
            if not _exchange(temporary, path):
                os.replace(temporary, path)  # the best that this system offers after the comparison above
            elif read(temporary) != old:
                _exchange(temporary, path)
                if _identity(os.stat(temporary)) != ours:  # it wrote once more: its newest version lives
                    _exchange(temporary, path)
                    _keep_found(path, temporary)
                lock.done()
                return False
            _sync_folder(path.parent)
            lock.done()
            return True
        finally:
            temporary.unlink(missing_ok=True)
    return False


def _keep_found(path: Path, temporary: Path) -> None:
    kept = path.with_name(f"{path.name}.found-{os.stat(temporary).st_ino}")
    temporary.rename(kept)
    _warn(f"{kept}: a version of {path.name} that another program wrote during a change of ours; compare the two")


def _warn(message: str) -> None:
    warnings.warn(OryxMemoryWarning(message), stacklevel=3)


def _contended(path: Path) -> FileProblem:
    return FileProblem(
        path, "another program keeps rewriting it without a lock; the change is not confirmed, try again"
    )


def refuse_unsafe(path: Path) -> None:
    """Raises FileProblem for a file that no change may touch, so that a change of several files can ask before it begins;
    a missing one may be made.
    """
    with contextlib.suppress(FileNotFoundError), _problems(path), _opened(path, _READ) as descriptor:
        _refuse_unsafe(descriptor, path)


def _refuse_unsafe(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if not status.st_mode & 0o222:
        raise FileProblem(path, f"is read-only (mode {stat.S_IMODE(status.st_mode):04o}); nothing was written")
    if status.st_nlink > 1:
        raise FileProblem(path, f"has {status.st_nlink} hard links, and a change would part them; refused")


def _take_back(descriptor: int, offset: int, expected: bytes) -> None:
    """Cut the file at `offset`, only if it ends with exactly `expected` there."""
    size = os.fstat(descriptor).st_size
    if size == offset + len(expected) and os.pread(descriptor, len(expected), offset) == expected:
        os.ftruncate(descriptor, offset)
        os.fsync(descriptor)


def _write_temporary(path: Path, data: bytes, like: Path | None) -> Path:
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}-{os.urandom(4).hex()}.oryx-tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if like else 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if like is None:
            adopt(descriptor, path.parent)
        else:
            _copy_metadata(like, descriptor)
        os.fsync(descriptor)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _copy_metadata(like: Path, descriptor: int) -> None:
    status = os.stat(like)
    try:
        os.fchown(descriptor, status.st_uid, status.st_gid)
    except OSError:
        with contextlib.suppress(OSError):
            os.fchown(descriptor, -1, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(like):
                with contextlib.suppress(OSError):  # names that only the kernel or root may set
                    os.setxattr(descriptor, name, os.getxattr(like, name))


def _leftovers(path: Path) -> list[Path]:
    start = f".{path.name[:200]}."
    with contextlib.suppress(OSError):
        return [
            path.with_name(name)
            for name in os.listdir(path.parent)
            if name.startswith(start) and name.endswith(".oryx-tmp")
        ]
    return []


def _rename_without_replacing(source: Path, target: Path) -> bool:
    done = _renameat2(source, target, 1)  # RENAME_NOREPLACE
    if done is None:
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        return True
    return done


def _exchange(one: Path, other: Path) -> bool:
    """Swap two files in one step; False where this system or file system cannot."""
    return bool(_renameat2(one, other, 2))  # RENAME_EXCHANGE


def _renameat2(source: Path, target: Path, flags: int) -> bool | None:
    """True if done, False if the target exists, None if this system cannot. Flags as in Linux's renameat2(2);
    macOS has the same two as renamex_np(2): RENAME_SWAP 2, RENAME_EXCL 4.
    """
    import ctypes  # only for rewrites, never on the way of an append

    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        result = libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), ctypes.c_uint(flags))
    elif hasattr(libc, "renamex_np"):
        result = libc.renamex_np(os.fsencode(source), os.fsencode(target), ctypes.c_uint(4 if flags == 1 else flags))
    else:
        return None
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return None
    raise OSError(code, os.strerror(code), str(target))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _quoted(name: str) -> str:
    """A file's name as one word of the lock file's header, which is one line."""
    return name.replace("%", "%25").replace(" ", "%20").replace("\n", "%0A")


def _unquoted(word: str) -> str:
    return word.replace("%0A", "\n").replace("%20", " ").replace("%25", "%")


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _chunks(descriptor: int, offset: int = 0, end: int | None = None) -> Iterator[bytes]:
    while chunk := os.pread(descriptor, CHUNK if end is None else min(CHUNK, end - offset), offset):
        yield chunk
        offset += len(chunk)


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, size + 1, 0)
    if len(data) == size:
        return data
    return data + b"".join(_chunks(descriptor, len(data)))


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileProblem(path, "is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _problems(path: Path) -> Iterator[None]:
    """Tell the system's errors as one line with the file; a missing file stays FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, FileProblem, LockTimeout):
        raise
    except OSError as error:
        raise FileProblem(path, _explain(path, error)) from error


def _explain(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left on the disk; nothing was added"
    if error.errno == errno.EISDIR:
        return "is a folder, not a file"
    if error.errno in (errno.EACCES, errno.EPERM):
        nearest = path if os.access(path.parent, os.X_OK) and path.exists() else path.parent
        try:
            status = os.stat(nearest)
        except OSError:
            return "permission denied"
        return f"permission denied (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}, you are {os.geteuid()})"
    return f"{(error.strerror or str(error)).lower()}"
