"""Files from strangers, and sets of files that are written whole or not at all.

Reading: a file is read only if it is a plain file of a size that was foreseen, and JSON only if every reader
understands the same by it.

Writing: new files are written aside and forced to the disk, then a note names them, then they are moved into place one
by one. A failure on the way puts the old ones back. After a kill the next writer, or the next reader of the set, finds
the note and completes the move, or finds none and deletes what was written aside. A directory has one writer at a time:
`flock` on the directory itself, which leaves no file behind and ends with the process.
"""

import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.numbers import decimals
from memloci.core.specs import shorten

PATIENCE = 60.0  # seconds to wait for another writer of the directory; writing takes far less
LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<token>[0-9a-f]{8})\.(new|old)")
NOTE = re.compile(r"\.(?P<token>[0-9a-f]{8})\.moving")
MAX_NOTE = 2**20
NO_LOCKS = (
    errno.ENOLCK,
    errno.EOPNOTSUPP,
    errno.EBADF,
    errno.ENOSYS,
)  # of a file system, as of some network drives


# -- reading ----------------------------------------------------------------------------------------------


def read_bytes(path: Path, most: int) -> bytes:
    """A regular file of at most `most` bytes; not a link, which could lead out of the directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BadInput("not a regular file")
            if status.st_size > most:
                raise BadInput(f"{status.st_size:,} bytes, but at most {most:,} were expected")
            data = file.read(most + 1)
    except FileNotFoundError:
        raise BadInput("no such file") from None
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        if isinstance(error, BadInput):
            raise
        reason = getattr(error, "strerror", None) or error
        raise BadInput(
            "a symbolic link, not a file" if _is_link(path) else f"cannot be read: {reason}"
        ) from None
    if len(data) > most:  # files of the system have no size, others grow
        raise BadInput(f"more than {most:,} bytes")
    return data


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False


def parse_json(data: bytes | str) -> Any:
    """What JSON says to every reader of it.

    Refused, because readers differ in what they make of it: a key twice in one object, NaN, infinities, numbers beyond
    float64, and bytes that are not UTF-8.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite_float
        )
    except BadInput:
        raise
    except (ValueError, RecursionError):
        raise BadInput("not JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadInput(
            f"not JSON with one meaning: the key {shorten(twice)} appears twice; delete one of them"
        )
    return entries


def _no_constant(name: str) -> None:
    raise BadInput(f"not JSON: {name} is no number of JSON; write null")


def _finite_float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise BadInput(f"not JSON that can be read: {shorten(text)} is beyond float64")
    return value


# -- writing ----------------------------------------------------------------------------------------------


def replace_together(
    directory: Path,
    files: dict[str, bytes],
    *,
    remove: Iterable[str] = (),
    check: Callable[[], None] | None = None,
) -> None:
    """All files new and those of `remove` gone, or all as before; `check` may refuse, once nobody else can write."""
    made = False
    try:
        made = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory, fcntl.LOCK_EX) as descriptor:
            _settle(directory)
            if check is not None:
                check()
            with _undisturbed():
                _replace(directory, descriptor, files, list(remove))
    except OSError as error:
        raise BadInput(f"{directory}: cannot be written: {error.strerror or error}") from None
    finally:
        if made and directory.is_dir() and not any(directory.iterdir()):
            with suppress(OSError):  # somebody else has begun to write there
                directory.rmdir()


def require_writable(directory: Path) -> None:
    """Refuse, before hours of work, a directory that could not be written after them."""
    for place in (directory, *directory.resolve().parents):
        if os.path.lexists(place):
            if not place.is_dir():
                raise BadInput(f"{directory}: cannot be written: {place} is not a directory")
            if not os.access(place, os.W_OK | os.X_OK):
                raise BadInput(f"{directory}: cannot be written: no permission to write into {place}")
            return


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """A set of files as one writer left it: nobody writes meanwhile, and what a killed one had begun is completed."""
    with ExitStack() as locks:
        with suppress(
            OSError
        ):  # there is no such directory, or it cannot be written: who reads from it says so
            if any(map(NOTE.fullmatch, os.listdir(directory))):
                with _locked(directory, fcntl.LOCK_EX):
                    _settle(directory)
            locks.enter_context(_locked(directory, fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[int]:
    """The descriptor of a directory that is locked, against other processes and against other threads."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        until = time.monotonic() + PATIENCE
        while not _lock(descriptor, how):
            if time.monotonic() > until:
                raise BadInput(
                    f"{directory}: another process has been writing there for {decimals(PATIENCE)} s"
                )
            time.sleep(0.01)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _replace(directory: Path, descriptor: int, files: dict[str, bytes], remove: list[str]) -> None:
    token = secrets.token_hex(4)
    aside = {name: directory / f".{name}.{token}.new" for name in files}
    backups = {name: directory / f".{name}.{token}.old" for name in (*files, *remove)}
    note = directory / f".{token}.moving"
    moved: list[str] = []
    try:
        for name, data in files.items():
            _write_through(aside[name], data)
        for name, copy in backups.items():
            if os.path.lexists(directory / name):
                _link_or_copy(directory / name, copy)
        _write_through(note, json.dumps({"files": list(files), "remove": remove}).encode())
        _flush_names(descriptor)
        for name in files:
            os.replace(aside[name], directory / name)
            moved.append(name)
        for name in remove:
            moved.append(name)
            (directory / name).unlink(missing_ok=True)
        _flush_names(descriptor)
    except BaseException:
        for name in moved:
            if os.path.lexists(backups[name]):
                os.replace(backups.pop(name), directory / name)  # if this fails too, the old file stays aside
            else:
                (directory / name).unlink(missing_ok=True)
        raise
    finally:
        for path in [note, *aside.values(), *backups.values()]:
            with suppress(OSError):  # the directory itself is out of reach; the first error says it better
                path.unlink(missing_ok=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C counts when the files are in place: it comes a moment later, and undoes nothing."""
    came: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda *call: came.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


def _settle(directory: Path) -> None:
    """Complete what a killed writer had begun to move, and delete what it had only written aside."""
    names = os.listdir(directory)
    for note in filter(NOTE.fullmatch, names):
        _complete(directory, note)
    for name in filter(LEFTOVER.fullmatch, names):
        (directory / name).unlink(missing_ok=True)


def _complete(directory: Path, note: str) -> None:
    token = note[1:9]
    try:
        intended = parse_json(read_bytes(directory / note, MAX_NOTE))
        files, remove = ([_checked_name(name) for name in intended[key]] for key in ("files", "remove"))
    except (BadInput, KeyError, TypeError):  # the power failed before the note was whole: nothing was moved
        files, remove = [], []
    for name in files:
        with suppress(FileNotFoundError):  # moved already
            os.replace(directory / f".{name}.{token}.new", directory / name)
    for name in remove:
        (directory / name).unlink(missing_ok=True)
    (directory / note).unlink(missing_ok=True)


def _checked_name(name: Any) -> str:
    """Of a file in the directory itself: a note from a stranger must not reach out of it."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise TypeError(name)
    return name


def _link_or_copy(path: Path, copy: Path) -> None:
    """A second name for a file, or a copy where the file system has no second names."""
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, copy, follow_symlinks=False)


def _write_through(path: Path, data: bytes) -> None:
    """Written, and on the disk before it gets its name."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_names(descriptor: int) -> None:
    """The names of a directory, on the disk; some file systems do that themselves and know no such request."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP):
            raise
