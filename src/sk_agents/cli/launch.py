"""How `teal serve` begins: one process that serves, or one that looks after several.

Loads neither of them: the one that looks after others needs nothing of the server.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sk_agents.cli.available_cores import available_cores
from sk_agents.cli.logs import configure_logs, log_what_python_prints
from sk_agents.cli.options import Exit
from sk_agents.config.foreign_variables import check_foreign_variables
from sk_agents.config.settings import Settings, environment, load_settings
from sk_agents.config.store_url import store_url
from sk_agents.exceptions import ConfigurationError
from sk_agents.redaction import secret_values
from sk_agents.telemetry.logs import print_line

# Of one process alone.
UNSHARED_STORES = ("memory:", "ephemeral:")


def run(config_paths: Sequence[Path], overrides: Mapping[str, Any]) -> Exit:
    """Serve until a signal says stop."""
    try:
        settings = prepare(config_paths, overrides)
        check_foreign_variables(environment(config_paths))
        count = worker_count(settings)
    except ConfigurationError as error:
        print_line(sys.stderr, f"teal: {error}")
        return Exit.BAD_CONFIGURATION
    if not is_supervised(settings, count):
        from sk_agents.cli.serve import serve  # noqa: PLC0415

        return serve(config_paths, settings)
    from sk_agents.cli.supervisor import supervise  # noqa: PLC0415

    return supervise(config_paths, overrides, settings, count)


def prepare(config_paths: Sequence[Path], overrides: Mapping[str, Any]) -> Settings:
    """The settings; from now on this process logs as they say.

    Raises:
        ConfigurationError: a variable has an unusable value.
    """
    configure_logs("warning")
    settings = load_settings(config_paths, **overrides)
    configure_logging(config_paths, settings)
    log_what_python_prints()
    return settings


def configure_logging(config_paths: Sequence[Path], settings: Settings) -> None:
    secrets = secret_values(settings, environment(config_paths))
    configure_logs(settings.log_level, settings.log_format, secrets=secrets)


def is_supervised(settings: Settings, count: int) -> bool:
    """Also one worker, where their number is the machine's affair: with what `auto` stands for, a
    reload must work on every machine."""
    is_shared = not store_url(settings).startswith(UNSHARED_STORES)
    return count > 1 or (settings.workers == "auto" and is_shared)


def worker_count(settings: Settings) -> int:
    """Raises ConfigurationError: several of them cannot share the store."""
    count = available_cores() if settings.workers == "auto" else settings.workers
    url = store_url(settings)
    if count > 1 and url.startswith(UNSHARED_STORES):
        if settings.workers == "auto":
            return 1
        kind = url.partition(":")[0]
        raise ConfigurationError(
            f"TA_WORKERS: {count} workers cannot share a store that is kept in memory ({kind}:); "
            "use sqlite:///path, or one worker"
        )
    return count
