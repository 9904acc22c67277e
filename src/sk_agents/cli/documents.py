"""Chats as files: written so that a crash leaves the old file or the new one, never half of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.screen import print_json
from sk_agents.client import ChatSummary


def write_document(document: dict[str, Any], path: Path | None) -> Exit:
    if path is None:
        print_json(document)
        return Exit.DONE
    text = json.dumps(document, indent=2)
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        return _unusable(path, error)
    return Exit.DONE


def read_document(path: Path) -> dict[str, Any] | None:
    """The document; `None`, and a line that says why, if there is none in the file."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, ValueError) as error:
        _unusable(path, error)
        return None
    if not isinstance(document, dict):
        _unusable(path, "it is no JSON object")
        return None
    return document


def print_imported(chat: ChatSummary, *, as_json: bool) -> Exit:
    if as_json:
        print_json(chat.model_dump(mode="json"))
    else:
        typer.echo(chat.id)
    return Exit.DONE


def _unusable(path: Path, reason: object) -> Exit:
    typer.echo(f"teal: {path} cannot be used: {reason}", err=True)
    return Exit.FAILED
