"""The files of a new agent: templates, filled in and written all or none."""

from __future__ import annotations

import asyncio
import errno
import re
import shlex
from pathlib import Path
from string import Template

import typer

from sk_agents.cli.exits import Exit
from sk_agents.config.agent_file import RESERVED_NAMES
from sk_agents.config.default_agents import ASSISTANT
from sk_agents.config.settings import load_settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.wiring import default_offer

TEMPLATES = Path(__file__).parent / "scaffold"
FILES = ("config.yaml", "custom_plugins.py", "test_agent.py", "README.md")
FALLBACK_MODEL = "gpt-5.4-mini"
FALLBACK_NAME = "notes"
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]*")


def write_scaffold(folder: Path, name: str | None, model: str | None) -> Exit:
    if name is not None and not is_name(name):
        raise typer.BadParameter(
            f"'{name}' cannot be an agent's name; use letters, digits, - and _"
        )
    if model is not None and not PLAIN.fullmatch(model):
        raise typer.BadParameter(f"'{model}' cannot be a model's name")
    found = model or asyncio.run(_found_model())
    values = {
        "name": name or _name_of(folder),
        "model": found or FALLBACK_MODEL,
        "folder": shlex.quote(str(folder)),
    }
    try:
        paths = _write(folder, values)
    except FileExistsError as error:
        typer.echo(f"teal: {error.filename} is there already; nothing was written", err=True)
        return Exit.FAILED
    except OSError as error:
        typer.echo(f"teal: {error.filename}: {error.strerror}", err=True)
        return Exit.FAILED
    for path in paths:
        typer.echo(f"wrote {path}")
    if found is None:
        typer.echo(
            f"No model was found here: set OPENAI_API_KEY, or change the model in {paths[0]}."
        )
    typer.echo("Next:")
    for command in ("teal doctor", "teal serve"):
        typer.echo(f"  {command} {values['folder']}")
    typer.echo("  teal chat")
    typer.echo(f"  python -m pytest {values['folder']}")
    return Exit.DONE


def is_name(name: str) -> bool:
    """Whether an agent may be called so."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name)) and (
        name.lower() not in RESERVED_NAMES
    )


def _name_of(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-")
    return name if is_name(name) else FALLBACK_NAME


async def _found_model() -> str | None:
    """What a server without configuration would take for its assistant."""
    try:
        offer = await default_offer(load_settings())
    except ConfigurationError:
        return None
    for file in offer.files:
        if file.name == ASSISTANT:
            agent = file.document["spec"]["agent"]
            # A model that needs more than its name is left to the person.
            return str(agent["model"]) if not agent.get("base_url") else None
    return None


def _write(folder: Path, values: dict[str, str]) -> list[Path]:
    """Raises OSError: a file exists or cannot be written."""
    texts = {folder / name: _filled(name, values) for name in FILES}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return list(texts)


def _filled(name: str, values: dict[str, str]) -> str:
    # Not named as Python or Markdown: they are neither before they are filled in.
    text = (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(values)
