"""Commands that read what is kept say so where nothing is kept, and leave nothing there."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sk_agents.cli import app
from sk_agents.cli.options import Exit

COMMANDS = [
    ("audit", "verify", "--store", "{store}"),
    ("audit", "export", "--store", "{store}"),
    ("audit", "checkpoint", "--store", "{store}"),
    ("prune", "--older-than", "90d", "--yes", "--store", "{store}"),
    ("migrate-store", "{store}", "sqlite://{folder}/target.sqlite"),
]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_mistyped_store_is_refused_and_not_made(
    tmp_path: Path, words: tuple[str, ...], kind: str
) -> None:
    missing = tmp_path / "mistyped"
    given = [word.format(store=f"{kind}://{missing}", folder=tmp_path) for word in words]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == Exit.BAD_CONFIGURATION
    assert done.output == f"teal: {missing}: there is no store here\n"
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_no_store_of_files(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["audit", "verify", "--store", f"file://{tmp_path}"])
    assert done.exit_code == Exit.BAD_CONFIGURATION
    assert list(tmp_path.iterdir()) == []
