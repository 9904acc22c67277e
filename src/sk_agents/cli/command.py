"""What `sk_agents.cli` describes, built: fifty commands with their options, which takes a while."""

import typer

from sk_agents.cli import app

command = typer.main.get_command(app)
