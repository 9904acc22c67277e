"""Variables of the public Teal Agents project that this server does not read.

None of them is passed over in silence: each one that is set is named once at start, with what to do
instead. One that decides which agents are served stops the start, and so does one whose effect the
operator would rely on: a request for sign-ins, or a misspelt setting that protects.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sk_agents.config.settings import CATALOG_PATH, ENV_STORE, PREFIX, Settings, variable
from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

_CONTAINER = "only the container's entry point reads it; see docs/deployment.md"
_A2A = "A2A is not served: agents have REST, SSE and websocket addresses"
_SIGN_IN = "set TA_AUTHORIZER=entra or oidc; see docs/authorization.md"
_MCP_SIGN_IN = "MCP servers are configured in the agent file; see docs/mcp.md"
_OTEL = "there is one collector for traces, metrics and logs: TA_OTEL_ENDPOINT"

ADVICE = {
    "TA_GITHUB": "the agents are not fetched from GitHub here: the container image does that (see "
    "docs/deployment.md), elsewhere clone the repository, serve its folder and unset TA_GITHUB",
    **dict.fromkeys(
        ("TA_GH_ORG", "TA_GH_REPO", "TA_GH_BRANCH", "TA_GH_TOKEN", "TA_AGENT_NAME"), _CONTAINER
    ),
    "TA_GH_COMMIT": _CONTAINER,
    "TA_GH_SHA256": _CONTAINER,
    "TA_ADDL_REQUIREMENTS": _CONTAINER,
    "TA_A2A_ENABLED": _A2A,
    "TA_A2A_OUTPUT_CLASSIFIER_MODEL": _A2A,
    "TA_STATE_MANAGEMENT": "TA_STORE says where conversations are kept; see docs/persistence.md",
    "TA_AUTH_STORAGE_MANAGER_MODULE": _MCP_SIGN_IN,
    "TA_AUTH_STORAGE_MANAGER_CLASS": _MCP_SIGN_IN,
    "TA_MCP_DISCOVERY_MODULE": _MCP_SIGN_IN,
    "TA_MCP_DISCOVERY_CLASS": _MCP_SIGN_IN,
    **dict.fromkeys(
        ("TA_OAUTH_REDIRECT_URI", "TA_OAUTH_CLIENT_NAME", "TA_OAUTH_BASE_URL"), _MCP_SIGN_IN
    ),
    **dict.fromkeys(
        (
            "TA_AUTH_REQUIRED",
            "TA_AD_GROUP_ID",
            "TA_AD_CLIENT_ID",
            "TA_AD_AUTHORITY",
            "TA_CLIENT_LOGIN_URL",
            "TA_CLIENT_SECRETS",
            "TA_PLATFORM_CLIENT_ID",
            "TA_PLATFORM_AUTHORITY",
            "TA_SCOPES",
        ),
        _SIGN_IN,
    ),
    **dict.fromkeys(
        ("TA_OTEL_TRACES_ENDPOINT", "TA_OTEL_METRICS_ENDPOINT", "TA_OTEL_LOGS_ENDPOINT"), _OTEL
    ),
}
# The commands that talk to a server read them, in a shell that may start one, too.
OF_COMMANDS = frozenset({"TA_SERVER", "TA_TOKEN"})
# With these values a variable asks for nothing.
IDLE = {
    "TA_GITHUB": ("false",),
    "TA_A2A_ENABLED": ("false",),
    "TA_AUTH_REQUIRED": ("false",),
}
# It decides which agents are served.
STOPPING = frozenset({"TA_GITHUB"})
# It asks for sign-ins, so one of these has to say how.
SIGN_INS = "TA_AUTH_REQUIRED"
AUTHORIZERS = ("TA_AUTHORIZER", "TA_AUTHORIZER_MODULE")
# Without these a server starts just as well: open, unencrypted, unlimited, or on another store.
PROTECTING = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("STORE", "AUTHORIZER", "AUTHORIZER_MODULE", "ROLES", "KEYS_FILE", "HIDE_EXISTENCE"),
        *("ENCRYPTION_KEYS", "ENCRYPTION_KEYS_FILE", "ENCRYPTION_KEYS_COMMAND"),
        *("BUDGET_RUN", "BUDGET_USER", "BUDGET_AGENT", "BUDGET_DAY", "TOKENS_PER_HOUR"),
        *("TOOL_CALLS_PER_RUN", "TOOL_CALLS_PER_HOUR", "REQUESTS_PER_MINUTE", "STREAMS_PER_USER"),
        *("AUDIT_KEY_FILE", "AUDIT_CHECKPOINTS_FILE", "RETENTION"),
    )
)
# What says the same in another way.
INSTEAD = {
    name: group
    for group in (
        AUTHORIZERS,
        ("TA_STORE", "TA_STORE_MODULE"),
        ("TA_ENCRYPTION_KEYS", "TA_ENCRYPTION_KEYS_FILE", "TA_ENCRYPTION_KEYS_COMMAND"),
    )
    for name in group
}
# Settings that a class of the operator's stands behind, which may have variables of its own.
EXTENDED = frozenset({"TA_STORE", "TA_AUTHORIZER", "TA_AUTHORIZER_MODULE"})
SHORTEST_CUT = len("TA_AUTH")


@dataclass(frozen=True, slots=True)
class ForeignVariable:
    name: str
    advice: str
    stops: bool = False


def foreign_variables(values: Mapping[str, str]) -> Iterator[ForeignVariable]:
    """Those that are set and that no setting is made of, with what to do."""
    known = {*map(variable, Settings.model_fields), ENV_STORE, CATALOG_PATH, *OF_COMMANDS}
    for name in sorted(values):
        is_meant = name.startswith(PREFIX) or name.upper() in known
        if not is_meant or name in known or not values[name]:
            continue
        if values[name].lower() in IDLE.get(name, ()):
            continue
        if (advice := ADVICE.get(name)) is not None:
            is_relied_on = name == SIGN_INS and not any(map(values.get, AUTHORIZERS))
            yield ForeignVariable(name, advice, name in STOPPING or is_relied_on)
        elif name.startswith("TA_MCP_OAUTH_"):
            yield ForeignVariable(name, _MCP_SIGN_IN)
        else:
            yield _unknown(name, known, values)


def _unknown(name: str, known: Collection[str], values: Mapping[str, str]) -> ForeignVariable:
    meant = _meant(name.upper(), known)
    if meant is None:
        return ForeignVariable(name, "this server does not know it, if no class of yours reads it")
    # With both set it is no misspelling: a class of the operator's may read it.
    if meant in PROTECTING and not any(map(values.get, INSTEAD.get(meant, (meant,)))):
        advice = f"this server does not know it, and {meant} is not set; correct or unset {name}"
        return ForeignVariable(name, advice, stops=True)
    return ForeignVariable(name, f"this server does not know it; is {meant} meant?")


def _meant(name: str, known: Collection[str]) -> str | None:
    """The setting that this is a misspelling of; for one that protects, also its beginning alone
    (`TA_ENCRYPTION`) and a longer name (`TA_RETENTION_DAYS`)."""
    if near := difflib.get_close_matches(name, known, 1, 0.85):
        return near[0]
    cut = [one for one in sorted(PROTECTING) if one.startswith(name) and len(name) >= SHORTEST_CUT]
    # Classes of the operator's read such names: `TA_STORE_FOLDER`, `TA_AUTHORIZER_URL`.
    own = [one for one in sorted(PROTECTING - EXTENDED) if name.startswith(f"{one}_")]
    return next(iter((*cut, *own)), None)


def check_foreign_variables(values: Mapping[str, str]) -> None:
    """Log each of them.

    Raises:
        ConfigurationError: one decides which agents are served, or would be relied on.
    """
    for found in foreign_variables(values):
        if found.stops:
            raise ConfigurationError(f"{found.name}: {found.advice}")
        logger.warning("%s has no effect: %s", found.name, found.advice)
