"""Places for todo lists: a file, or a database of the tests' own PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a todo list may lie, one after the other."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/deep/todo.sqlite"
    return str(request.getfixturevalue("schema"))
