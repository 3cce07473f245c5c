"""Files from strangers, and files written whole or not at all.

New files are written aside, forced to the disk, then moved into place one by one; a failure on the way puts
the old ones back. A file is read only if it is a plain file of a size that was foreseen.
"""

import os
import secrets
import shutil
import stat
from pathlib import Path

from memloci.core.errors import BadInput


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
            return file.read(most + 1)
    except FileNotFoundError:
        raise BadInput("no such file") from None
    except OSError as error:
        linked = path.is_symlink()
        raise BadInput(
            "a symbolic link, not a file" if linked else f"cannot be read: {error.strerror}"
        ) from None


def replace_together(directory: Path, files: dict[str, bytes]) -> None:
    """All files new, or all as before."""
    new = secrets.token_hex(4)
    aside = {name: directory / f".{name}.{new}.new" for name in files}
    kept = {name: directory / f".{name}.{new}.old" for name in files}
    moved: list[str] = []
    made = False
    try:
        made = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write_through(aside[name], data)
            if os.path.lexists(directory / name):
                _keep(directory / name, kept[name])
        for name in files:
            os.replace(aside[name], directory / name)
            moved.append(name)
    except BaseException as error:
        for name in moved:
            if os.path.lexists(kept[name]):
                os.replace(kept.pop(name), directory / name)  # if this fails too, the old file stays aside
            else:
                (directory / name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise BadInput(f"{directory}: cannot be written: {error.strerror or error}") from None
        raise
    finally:
        for path in [*aside.values(), *kept.values()]:
            try:
                path.unlink(missing_ok=True)
            except OSError:  # the directory itself is out of reach; the first error says it better
                pass
        if made and directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def _keep(path: Path, copy: Path) -> None:
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
