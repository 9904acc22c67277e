"""Where variables may be written down: `.env` files, and the real environment over them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dotenv import dotenv_values


def dotenv_files(config_paths: Iterable[Path]) -> list[Path]:
    """`.env` beside each config, then the current directory's: a later one wins."""
    beside = [path if path.is_dir() else path.parent for path in config_paths]
    files = dict.fromkeys((folder / ".env").absolute() for folder in (*beside, Path.cwd()))
    return [file for file in files if file.is_file()]


def written_values(files: Sequence[Path]) -> dict[str, str | None]:
    """All variables, the environment's before those of the files."""
    values: dict[str, str | None] = {}
    for file in files:
        values.update(dotenv_values(file))
    return values | os.environ
