"""Compiled programs, kept on disk: the second run of a program starts at once.

The place is $MEMLOCI_CACHE, else the user's cache directory; MEMLOCI_CACHE=off keeps nothing.
"""

import os
from pathlib import Path

import jax


def place() -> Path | None:
    chosen = os.environ.get("MEMLOCI_CACHE", "").strip()
    if chosen.lower() in ("off", "0", "none"):
        return None
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "memloci" / "programs"


def keep_programs() -> None:
    """Unless the user has set up JAX's own cache already, or nothing can be written there."""
    where = place()
    if where is None or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(where, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(where))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
