"""Where the past has a letter: the latest and the earliest occurrence, and sums over all of them, at every position.

    s(t) = max { s <= t - 1 - o : c_s = q_t }        (min for the earliest)

Candidates and queries are laid out in the order of time, (c_{-1-o}), q_0, (c_{-o}), q_1, ..., and sorted by letter in a
stable way: each letter is then one run in the order of time, and a running maximum over it finds the last candidate before
a query. O(n log n), and integers of 32 bits suffice for every length.
"""

from typing import Any

NOWHERE = -1  # a letter that nothing has, and a position that does not exist
HIDDEN = -2  # a candidate that cannot be found


def interleaved(candidate: Any, query: Any, offset: int) -> tuple[Any, Any, Any]:
    """(letters, positions, order): the 2 n entries, candidates at even places, and how they are sorted."""
    import jax.numpy as jnp

    n = query.shape[0]
    s = jnp.arange(n, dtype=jnp.int32) - 1 - offset  # the candidate that becomes visible at t
    letter = jnp.where(s >= 0, candidate[jnp.maximum(s, 0)], HIDDEN)
    letters = jnp.stack([letter, query], axis=1).reshape(-1)
    positions = jnp.stack([s, jnp.full(n, NOWHERE, jnp.int32)], axis=1).reshape(-1)
    return letters, positions, jnp.argsort(letters, stable=True)


def occurrence(candidate: Any, query: Any, offset: int, latest: bool) -> Any:
    """s(t) for letters (n,) of the candidates and of the queries; NOWHERE if there is none. Letters are >= 0."""
    import jax
    import jax.numpy as jnp

    n = query.shape[0]
    if n == 0:
        return query
    letters, positions, order = interleaved(candidate, query, offset)
    sorted_letters, place = letters[order], jnp.arange(2 * n, dtype=jnp.int32)
    marked = positions[order] >= 0
    if not latest:  # the first candidate of its run
        before = jnp.pad(
            jax.lax.cummax(jnp.where(marked, place, NOWHERE))[:-1], (1, 0), constant_values=NOWHERE
        )
        marked &= (before < 0) | (sorted_letters[jnp.maximum(before, 0)] != sorted_letters)
    last = jax.lax.cummax(jnp.where(marked, place, NOWHERE))
    matches = (last >= 0) & (sorted_letters[jnp.maximum(last, 0)] == sorted_letters) & (sorted_letters >= 0)
    matched = jnp.where(matches, positions[order][jnp.maximum(last, 0)], NOWHERE)
    return jnp.zeros(2 * n, jnp.int32).at[order].set(matched)[1::2]


def mean(candidate: Any, query: Any, X: Any, offset: int) -> tuple[Any, Any]:
    """(the mean of x_{s + offset} over all occurrences s, how many there are), at every position."""
    import jax
    import jax.numpy as jnp

    n, d = X.shape
    letters, positions, order = interleaved(candidate, query, offset)
    sorted_letters, s = letters[order], positions[order]
    counted = (s >= 0) & (sorted_letters >= 0)
    rows = jnp.where(counted[:, None], X[jnp.clip(s + offset, 0, n - 1)], 0.0)
    entries = jnp.concatenate([rows, counted[:, None].astype(X.dtype)], axis=1)
    first = jnp.concatenate([jnp.ones(1, bool), sorted_letters[1:] != sorted_letters[:-1]])

    def joined(a: Any, b: Any) -> Any:
        """Sums within runs, two by two: they round no more than a logarithm of the length."""
        return a[0] | b[0], jnp.where(b[0][:, None], b[1], a[1] + b[1])

    _, sums = jax.lax.associative_scan(joined, (first, entries))
    back = jnp.zeros((2 * n, d + 1), X.dtype).at[order].set(sums)[1::2]
    count = back[:, d]
    return back[:, :d] / jnp.maximum(count, 1)[:, None], count
