"""The files of a first agent: templates, filled in and written."""

from __future__ import annotations

import asyncio
import errno
import re
import shlex
from pathlib import Path
from string import Template

import typer

from sk_agents.cli.options import Exit
from sk_agents.config.agent_file import RESERVED_NAMES
from sk_agents.config.default_agents import ASSISTANT, LOCAL, UNTAUGHT
from sk_agents.config.settings import load_settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.wiring import default_offer

TEMPLATES = Path(__file__).parent / "scaffold"
FILES = ("config.yaml", "custom_plugins.py", "test_agent.py", "README.md")
FALLBACK_MODEL = "gpt-5.4-mini"
FALLBACK_NAME = "notes"
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]*")


def write_agent(folder: Path, name: str | None, model: str | None) -> Exit:
    if name is not None and not _is_agent_name(name):
        raise typer.BadParameter(
            f"'{name}' cannot be an agent's name; use letters, digits, - and _"
        )
    if model is not None and not MODEL_NAME.fullmatch(model):
        raise typer.BadParameter(f"'{model}' cannot be a model's name")
    found = model or asyncio.run(_found_model())
    values = {
        "name": name or _name_of(folder),
        "model": found or FALLBACK_MODEL,
        "folder": shlex.quote(str(folder)),
    }
    try:
        paths = _write(folder, values)
    except OSError as error:
        reason = error.strerror or ""
        if isinstance(error, FileExistsError):
            reason = "exists already; nothing was written"
        typer.echo(f"teal: {error.filename}: {reason}", err=True)
        return Exit.FAILED
    for path in paths:
        typer.echo(f"wrote {path}")
    if found is None:
        typer.echo(
            f"No model was found here: set OPENAI_API_KEY, or change the model in {paths[0]}."
        )
    elif found.startswith(LOCAL):
        typer.echo(
            f"{found}, the only model found here, {UNTAUGHT}.\n"
            f"To see the tools at work set OPENAI_API_KEY and change the model in {paths[0]}."
        )
    typer.echo("Next:")
    for command in ("teal doctor {folder}", "teal serve {folder}", "teal chat"):
        typer.echo(f"  {command.format(**values)}")
    typer.echo(f"  python -m pytest {values['folder']}")
    return Exit.DONE


def _is_agent_name(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name)) and (
        name.lower() not in RESERVED_NAMES
    )


def _name_of(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-")
    return name if _is_agent_name(name) else FALLBACK_NAME


async def _found_model() -> str | None:
    """The model that the assistant of a server without configuration would have."""
    try:
        offer = await default_offer(load_settings())
    except ConfigurationError:
        return None
    for file in offer.files:
        if file.name == ASSISTANT:
            agent = file.document["spec"]["agent"]
            # A model that needs more than its name is left to the user.
            return str(agent["model"]) if not agent.get("base_url") else None
    return None


def _write(folder: Path, values: dict[str, str]) -> list[Path]:
    """Write all files or none.

    Raises:
        OSError: a file exists or cannot be written.
    """
    # The templates do not end in .py or .md: they are neither before they are filled in.
    texts = {
        folder / name: Template((TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")).substitute(
            values
        )
        for name in FILES
    }
    for path in texts:
        if path.exists() or path.is_symlink():
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return list(texts)
