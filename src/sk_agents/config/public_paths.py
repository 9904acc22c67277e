"""The public Teal Agents project's own modules, as its settings name them.

They are paths into its source tree, or dotted names. If such a module does not exist here, our
module of the same name is used. The list is closed: any other module, such as an authorizer that
checks tokens, is never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

logger = logging.getLogger(__name__)

PACKAGE = "sk_agents"
# By their place in the package, which was another one in some of its versions.
_OURS = {
    "authorization.dummy_authorizer": "sk_agents.authorization.dummy_authorizer",
    "persistence.in_memory_persistence_manager": (
        "sk_agents.persistence.in_memory_persistence_manager"
    ),
    "plugin_catalog.local_plugin_catalog": "sk_agents.plugin_catalog.local_plugin_catalog",
    "plugincatalog.local_plugin_catalog": "sk_agents.plugin_catalog.local_plugin_catalog",
}


def own_modules(named: Mapping[str, str | None], variable: Callable[[str], str]) -> dict[str, str]:
    """Our modules for those of the named ones that are the public project's and are not here.

    `named` are modules by their settings, `variable` the name of a setting for messages.
    """
    found: dict[str, str] = {}
    for field, module in named.items():
        ours = own_module(module) if module is not None else None
        if ours is not None:
            logger.warning("%s: there is no '%s' here; %s is used", variable(field), module, ours)
            found[field] = ours
    return found


def own_module(module: str) -> str | None:
    """Ours for a module of the public project that is not here; `None` for every other."""
    is_path = module.endswith(".py")
    if is_path and Path(module).is_absolute():
        return None
    parts = PurePosixPath(module.removesuffix(".py")).parts if is_path else tuple(module.split("."))
    if PACKAGE in parts:
        parts = parts[len(parts) - parts[::-1].index(PACKAGE) :]
    ours = _OURS.get(".".join(parts))
    if ours is None or ours == module:
        return None
    return None if (Path(module).exists() if is_path else _is_module(module)) else ours


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
