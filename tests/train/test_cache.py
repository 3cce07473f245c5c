"""Compiled programs are kept where the user wants them, or nowhere."""

from pathlib import Path

import jax
import pytest

from memloci.train.cache import directory, keep_programs


@pytest.mark.parametrize(
    "chosen, home, expected",
    [
        ("", "/cache", "/cache/memloci/programs"),
        ("/mine", "/cache", "/mine"),
        ("off", "/cache", None),
        (" OFF ", "/cache", None),
    ],
)
def test_the_place_is_the_users_choice(monkeypatch, chosen, home, expected):
    monkeypatch.setenv("MEMLOCI_CACHE", chosen)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert directory() == (Path(expected) if expected else None)


def test_a_program_is_kept_unless_told_otherwise(tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("MEMLOCI_CACHE", "off")
        keep_programs()
        assert not jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("MEMLOCI_CACHE", str(tmp_path / "file" / "below"))  # cannot be made: no matter
        keep_programs()
        assert not jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setenv("MEMLOCI_CACHE", str(tmp_path / "kept"))
        keep_programs()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "kept")  # pyright: ignore[reportAttributeAccessIssue]
        assert (tmp_path / "kept").is_dir()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
