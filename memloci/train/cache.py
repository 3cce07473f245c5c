"""Compiled programs, kept on disk: the second run of a program starts at once.

The place is $MEMLOCI_CACHE, else the user's cache directory; MEMLOCI_CACHE=off keeps nothing. It holds at most
$MEMLOCI_CACHE_MB megabytes (1024 unless set): a process that starts deletes first what was not used for longest. Programs
of several processes meet there, so a file may be gone before it is looked at, and that is no error.
"""

import os
from pathlib import Path

import jax

from memloci.core.limits import limit_from

MOST = 1024  # megabytes; a program takes one or two


def directory() -> Path | None:
    chosen = os.environ.get("MEMLOCI_CACHE", "").strip()
    if chosen.lower() in ("off", "0", "none"):
        return None
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "memloci" / "programs"


def keep_programs() -> None:
    """Unless the user has set up JAX's own cache already, or nothing can be written there."""
    where = directory()
    if where is None or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(where, os.W_OK):
        delete_oldest(where, most_bytes())
        jax.config.update("jax_compilation_cache_dir", str(where))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def most_bytes() -> int:
    return int(limit_from("MEMLOCI_CACHE_MB", MOST) * 2**20)


def delete_oldest(directory: Path, most: int) -> int:
    """Delete the files that were not read or written for longest, until the rest has at most so many bytes; how many."""
    files = []
    for path in directory.iterdir():
        try:
            status = path.lstat()
        except OSError:  # another process has deleted it
            continue
        if path.is_file() and not path.is_symlink():
            files.append((max(status.st_atime_ns, status.st_mtime_ns), status.st_size, path))
    total, deleted = sum(size for _, size, _ in files), 0
    for _, size, path in sorted(files, key=lambda file: file[0]):
        if total <= most:
            break
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue
        total, deleted = total - size, deleted + 1
    return deleted
