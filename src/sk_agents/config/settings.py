"""The environment, read once: every `TA_*` variable is a field of `Settings`.

Sources, strongest first: arguments (command-line flags), `TA_ENV_STORE` (a JSON object of
variables), the real environment, `.env` in the current directory, `.env` beside the agent file. An
empty value counts as not set. Messages name the variable and never repeat its value, which may be a
secret.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from sk_agents.config.amounts import Amounts, read_amounts, read_span
from sk_agents.config.public_paths import own_modules
from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

PREFIX = "TA_"
ALIAS_PREFIX = "TEAL_"
# Each module needs its class and the reverse.
PAIRS = (
    ("authorizer_module", "authorizer_class"),
    ("persistence_module", "persistence_class"),
    ("store_module", "store_class"),
    ("interaction_store_module", "interaction_store_class"),
    ("plugin_catalog_module", "plugin_catalog_class"),
    ("custom_chat_completion_factory_module", "custom_chat_completion_factory_class_name"),
)
# One of them says what encrypts the store.
KEY_SOURCES = ("encryption_keys", "encryption_keys_file", "encryption_keys_command")
ALIASED_FIELDS = PAIRS[0] + PAIRS[1]
# Variables in one.
ENV_STORE = "TA_ENV_STORE"
_OURS = re.compile(rf"\b(?:{PREFIX}|{ALIAS_PREFIX})[A-Z]")
# What some pages of the public project call `TA_PLUGIN_CATALOG_FILE`.
CATALOG_PATH = "TA_PLUGIN_CATALOG_PATH"

_NAME = r"(?:[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])"
_HOST = re.compile(rf"\*|{_NAME}")
_ORIGIN = re.compile(rf"https?://{_NAME}(?::[0-9]{{1,5}})?")


def variable(field: str) -> str:
    return PREFIX + field.upper()


def alias_variable(field: str) -> str:
    return ALIAS_PREFIX + field.upper()


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part for part in (part.strip() for part in value.split(",")) if part)


def _pairs(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = [part.strip().partition("=") for part in value.split(",") if part.strip()]
    if not all(name.strip() and text.strip() for name, _, text in parts):
        raise ValueError("must be like name=value, with commas between several")
    return {name.strip(): text.strip() for name, _, text in parts}


def _host(value: str) -> str:
    if not _HOST.fullmatch(value.lower()):
        raise ValueError("must be names without ports, or *")
    return value.lower()


_PUBLIC_URL = re.compile(r"https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")


def _origin(value: str) -> str:
    # There is no `*`: it would let every page on the web in.
    if not _ORIGIN.fullmatch(value.lower()):
        raise ValueError("must be like https://name or https://name:port")
    return value.lower()


def _titles(text: str) -> str:
    """As a flag is spelled; any other word is a model's name."""
    match text.lower():
        case "on" | "true" | "yes" | "1":
            return "on"
        case "off" | "false" | "no" | "0":
            return "off"
        case _:
            return text


Flag = Annotated[bool, BeforeValidator(_lower)]
Level = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_lower)]
OtelProtocol = Annotated[Literal["http", "grpc"], BeforeValidator(_lower)]
LogFormat = Annotated[Literal["text", "json"], BeforeValidator(_lower)]
AuthorizerName = Annotated[Literal["dummy", "entra", "oidc", "keys"], BeforeValidator(_lower)]
TokenVersions = Annotated[
    tuple[Literal["1.0", "2.0"], ...], NoDecode, BeforeValidator(_split), Field(min_length=1)
]
# None of them works with a shared secret, which every verifier could sign with.
SigningAlgorithms = Annotated[
    tuple[
        Literal[
            "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
        ],
        ...,
    ],
    NoDecode,
    BeforeValidator(_split),
    Field(min_length=1),
]
Port = Annotated[int, Field(ge=0, le=65535)]
Workers = Annotated[Annotated[int, Field(ge=1, le=256)] | Literal["auto"], BeforeValidator(_lower)]
# Several names in one variable, with commas between them.
Names = Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(_split)]
Parameters = Annotated[dict[str, str] | None, NoDecode, BeforeValidator(_pairs)]
HostNames = Annotated[
    tuple[Annotated[str, AfterValidator(_host)], ...] | None, NoDecode, BeforeValidator(_split)
]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...] | None, NoDecode, BeforeValidator(_split)
]


def _public_url(value: str | None) -> str | None:
    if value is not None and not _PUBLIC_URL.fullmatch(value):
        raise ValueError("must be like https://name or https://name:port/path")
    return value.rstrip("/") if value is not None else None


PublicUrl = Annotated[str | None, AfterValidator(_public_url)]

KEPT_UNTIL_OLD = ("completed", "failed", "cancelled", "idle", "expired")


def _retention(value: object) -> object:
    pairs = _pairs(value)
    if not isinstance(value, str) or not isinstance(pairs, dict):
        return value
    if unknown := sorted(pairs.keys() - set(KEPT_UNTIL_OLD)):
        known = ", ".join(KEPT_UNTIL_OLD)
        raise ValueError(f"{unknown[0]} is none of {known}")
    ages = {name: read_span(text) for name, text in pairs.items()}
    if any(not age and name != "expired" for name, age in ages.items()):
        raise ValueError("only `expired` may be 0: everything else would go at once")
    return ages


Retention = Annotated[dict[str, float] | None, NoDecode, BeforeValidator(_retention)]
Budget = Annotated[
    Amounts | None,
    NoDecode,
    BeforeValidator(lambda text: read_amounts(text) if isinstance(text, str) else text),
]


class Settings(BaseSettings):
    """All settings of one server. `load_settings` is the way to read them at start-up."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    service_config: Path | None = Field(
        None, description="Agent file or folder that is served when the command names none."
    )
    store: str | None = Field(
        None,
        min_length=1,
        description="Where conversations are kept: `sqlite:///path`, `file:///dir`, `memory:`, "
        "`postgresql://user@host/database`, `redis://host:6379/0`, "
        "`dynamodb://table?region=...`. "
        "Unset: a SQLite file in the user's data folder.",
    )
    store_module: str | None = Field(
        None, description="Dotted name or file path of the module of a store of your own."
    )
    store_class: str | None = Field(
        None, description="Its class: the port `Store` (`sk_agents.engine.ports`)."
    )
    interaction_store_module: str | None = Field(
        None,
        description="Dotted name or file path of the module of an `InteractionStore` of your own, "
        "which gets a copy of each interaction once it has ended.",
    )
    interaction_store_class: str | None = Field(None, description="Its class.")
    required_durability: Literal["D1", "D2", "D3"] | None = Field(
        None,
        description="What the store must survive at least: `D1` a killed process, `D2` a lost "
        "machine, `D3` a lost site. The server does not start on a store that keeps less, and is "
        "not ready while its store does.",
    )
    signals: str | None = Field(
        None,
        min_length=1,
        description="How instances notify each other: `local:` (not at all), or the URL of the "
        "store, of the database itself, behind a pooler, or of a Redis. Unset: the way of the "
        "store.",
    )
    postgres_password_command: str | None = Field(
        None,
        min_length=1,
        description="Command that prints the password for a `postgresql:` URL, run for each new "
        "connection: for passwords that are good for minutes.",
    )
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: Port = Field(8000, description="Port to listen on; 0 picks a free one.")
    workers: Workers = Field(
        1,
        description="Processes that serve the address together; `auto`: one for each core that "
        "this process may use.",
    )
    allowed_hosts: HostNames = Field(
        None,
        description="Names, without ports, by which clients may call this server; `*` for any. "
        "Unset: any, but only `localhost` and loopback addresses if it listens on loopback.",
    )
    public_url: PublicUrl = Field(
        None,
        description="How browsers reach this server, as `https://name`: users who sign in at an "
        "MCP server come back to it. Unset: as the request that began it did.",
    )
    allowed_origins: Origins = Field(
        None, description="Other web sites whose pages may use this server, as `https://name:port`."
    )
    max_connections: int = Field(
        10_000,
        gt=0,
        description="Open connections. One more closes an idle one, else 503.",
    )
    conversation_memory_mb: int = Field(
        25,
        gt=0,
        description="Megabytes of conversations that one process keeps in memory. One that does "
        "not fit is read again at its next turn.",
    )
    max_body_bytes: int = Field(1024 * 1024, gt=0, description="Size of a request; over it 413.")
    max_image_body_bytes: int = Field(
        12 * 1024 * 1024, gt=0, description="Size of a request that may carry images."
    )
    body_timeout: float = Field(
        30.0, gt=0, description="Seconds in which a request's body must arrive; after that 408."
    )
    streams_per_user: int = Field(
        100,
        gt=0,
        description="Event streams and websockets a user may hold open, else 429. No limit while "
        "every request is the development user.",
    )
    max_chats_per_user: int = Field(
        10_000, gt=0, description="Chats, and as many Teal tasks, that a user may keep, else 429."
    )
    max_pending_approvals: int = Field(
        1_000,
        gt=0,
        description="Approvals that may wait for a user; over it new runs are 429. No limit while "
        "every request is the development user.",
    )
    requests_per_minute: int | None = Field(
        None, gt=0, description="Requests that a user may make in a minute, else 429. Unset: any."
    )
    tool_calls_per_run: int | None = Field(
        None, gt=0, description="Calls of tools in one turn. Unset: as many as its rounds allow."
    )
    tool_calls_per_hour: int | None = Field(
        None, gt=0, description="Calls of tools that a user's turns may make in an hour."
    )
    tokens_per_hour: int | None = Field(
        None, gt=0, description="Tokens of models that a user's turns may use in an hour."
    )
    budget_run: Budget = Field(
        None, description="What one turn may use: `0.50 USD`, `100000 tokens`, or both."
    )
    budget_user: Budget = Field(None, description="What one user's turns may use in a day (UTC).")
    budget_agent: Budget = Field(
        None, description="What the turns of one agent may use in a day, all users together."
    )
    budget_day: Budget = Field(None, description="What all turns together may use in a day.")
    budget_soft: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of a budget from which a turn asks a person before it goes on to use "
        "tools: `0.8`. Unset: it does not ask.",
    )
    usage_days: int = Field(
        90, ge=0, le=3650, description="Days for which `GET /usage` can be asked; 0 keeps nothing."
    )
    log_level: Level = Field("info", description="debug, info, warning, error or critical.")
    log_format: LogFormat = Field("text", description="`text`, or `json`: one object a line.")
    loop_held_seconds: float = Field(
        0.05,
        ge=0,
        le=60,
        description="A step that blocks the event loop for longer is logged with its place in the "
        "code; 0: never.",
    )
    write_timeout: float = Field(
        30.0,
        gt=0,
        description="Seconds in which a client must read what was sent, or it is disconnected.",
    )
    disconnect_grace: float = Field(
        30.0,
        ge=0,
        description="Seconds that a run with `on_disconnect: cancel` goes on without readers.",
    )
    request_wait: float = Field(
        300.0,
        gt=0,
        description="Seconds that a request without a stream waits for its answer, else 504.",
    )
    hide_existence: Flag = Field(
        False, description="Answer 404 instead of 401 for what belongs to another user."
    )
    allow_insecure_auth: Flag = Field(
        False,
        description="Allow an authorizer that checks no tokens on other addresses than loopback.",
    )
    authorizer: AuthorizerName | None = Field(
        None,
        description="Who may call: `entra` (Microsoft Entra ID), `oidc` (any OpenID Connect "
        "issuer), `keys` (access keys), `dummy` (every request is the development user "
        "`dummyuser`). Unset: `dummy`, or the class that `TA_AUTHORIZER_MODULE` names.",
    )
    entra_tenant_id: Names = Field(
        None, description="Ids of the Entra ID directories whose users may call, with commas."
    )
    entra_client_id: str | None = Field(
        None, min_length=1, description="Id of this server's registration in Entra ID."
    )
    entra_audience: Names = Field(
        None, description="Audiences of accepted tokens. Unset: the client's id and `api://<id>`."
    )
    entra_scopes: Names = Field(
        ("access_as_user",), description="Scopes that a person's token must have, all of them."
    )
    entra_roles: Names = Field(
        None, description="Application roles of which a program needs one. Unset: no programs."
    )
    entra_allowed_clients: Names = Field(
        None, description="Ids of the clients that may call. Unset: every one of the directory."
    )
    entra_authority: str = Field(
        "https://login.microsoftonline.com",
        description="Where the directories' keys are; another one for sovereign clouds.",
    )
    entra_token_versions: TokenVersions = Field(
        ("1.0", "2.0"), description="Versions of access tokens that are accepted."
    )
    entra_page_client_id: str | None = Field(
        None,
        min_length=1,
        description="Id of the registration as which the page signs people in. Unset: it asks for "
        "a token.",
    )
    entra_cli_client_id: str | None = Field(
        None,
        min_length=1,
        description="Id of the registration as which `teal login` signs people in.",
    )
    oidc_issuer: str | None = Field(
        None,
        min_length=1,
        description="Address of the OpenID Connect issuer, as tokens say it.",
    )
    oidc_audience: Names = Field(
        None, description="Audiences of accepted tokens; a token needs one of them."
    )
    oidc_scopes: Names = Field(None, description="Scopes that a token must have, all of them.")
    oidc_user_claim: str = Field(
        "sub",
        min_length=1,
        description="Claim that is the user's id. It must never be given to another person.",
    )
    oidc_groups_claim: str = Field("groups", min_length=1, description="Claim with the groups.")
    oidc_algorithms: SigningAlgorithms = Field(
        ("RS256",), description="Algorithms with which tokens may be signed."
    )
    oidc_page_client_id: str | None = Field(
        None,
        min_length=1,
        description="Client as which the page signs people in. Unset: it asks for a token.",
    )
    oidc_cli_client_id: str | None = Field(
        None, min_length=1, description="Client as which `teal login` signs people in."
    )
    oidc_sign_in_scopes: Names = Field(
        None,
        description="Scopes that signing in asks for. Unset: `openid`, `profile`, "
        "`offline_access` and those of `TA_OIDC_SCOPES`.",
    )
    oidc_sign_in_parameters: Parameters = Field(
        None,
        description="Further parameters of requests to the issuer, as `name=value` with commas, "
        "such as `audience=...` (Auth0) or `resource=...` (RFC 8707).",
    )
    keys_file: Path | None = Field(
        None, description="File of access keys. Unset: `keys.json` in the user's data folder."
    )
    roles: str | None = Field(
        None,
        min_length=1,
        description="Who has the roles `user`, `approver` and `operator`: a JSON object, or the "
        "path of a YAML file. Unset: everyone is a user, and a token's or key's role `approver` "
        "or `operator` is that role.",
    )
    open_monitoring: Flag = Field(
        False,
        description="Everyone may read `/metrics` and the details of `/health/ready`, not only "
        "operators. Always so while every request is the development user.",
    )
    authorizer_module: str | None = Field(
        None,
        description="Dotted name or file path of the authorizer's module. Unset: every request is "
        "the development user `dummyuser`.",
    )
    authorizer_class: str | None = Field(None, description="Its class.")
    authorizer_timeout: float = Field(
        10.0, gt=0, le=300, description="Seconds an authorizer may take; after that 503."
    )
    persistence_module: str | None = Field(
        None, description="Dotted name or file path of a `TaskPersistenceManager`'s module."
    )
    persistence_class: str | None = Field(None, description="Its class.")
    persistence_settle: float = Field(
        0.2,
        gt=0,
        le=10,
        description="How long a class with the four methods alone may take to load a task and to "
        "write one, in seconds; a turn that goes on with a task begins later by as much. The "
        "same for all servers that share the class.",
    )
    retention: Retention = Field(
        None,
        description="How long conversations are kept in which nothing runs or waits, by status, "
        "as `completed=90d,failed=30d`: `completed`, `failed`, `cancelled` and `idle` count from "
        "the last change, `expired` from the time at which a task was to expire. "
        "Unset: nothing is removed.",
    )
    encryption_keys: SecretStr | None = Field(
        None,
        description="Keys that encrypt what is stored, with commas between them: the first "
        "encrypts, each of them decrypts. `teal encryption-key` makes one. Unset: nothing is "
        "encrypted.",
    )
    encryption_keys_file: Path | None = Field(
        None, description="File that holds these keys instead, one a line."
    )
    encryption_keys_command: str | None = Field(
        None,
        min_length=1,
        description="Command that prints these keys instead, one a line; it is run without a "
        "shell when the server starts.",
    )
    audit_key_file: Path | None = Field(
        None,
        description="File with the Ed25519 private key that signs checkpoints of the audit log; "
        "`teal audit key` makes one. Unset: there are no checkpoints.",
    )
    audit_checkpoint_seconds: float = Field(
        3600.0, ge=1, le=7 * 86_400, description="Seconds between two checkpoints."
    )
    audit_checkpoints_file: Path | None = Field(
        None,
        description="File that gets a line for each checkpoint, to be kept where the server's own "
        "user cannot change it.",
    )
    api_key: SecretStr | None = Field(None, description="API key for the model provider.")
    client_cert: Path | None = Field(
        None,
        description="Certificate (PEM) that this server shows to https servers that ask for one.",
    )
    client_key: Path | None = Field(
        None, description="Its private key. Unset: it is in the certificate's file."
    )
    client_key_password: SecretStr | None = Field(None, description="The key's password.")
    model: str | None = Field(
        None,
        min_length=1,
        description="Model of the `assistant` of a server without configuration. Unset: the best "
        "one found.",
    )
    titles: Annotated[str, AfterValidator(_titles)] | None = Field(
        None,
        min_length=1,
        description="After the first answer of a chat, a model makes its title: `on` for the "
        "agent's own model, or the name of another, cheaper one. Unset or `off`: titles are made "
        "of the message. Each title is one more call of a model. An agent file's `titles` comes "
        "first; `scripted/` models are left out.",
    )
    script_pace: float = Field(
        1.0, ge=0, le=100, description="Factor on the pauses of `scripted/` models; 0 for none."
    )
    agent_base_url: str | None = Field(
        None,
        min_length=1,
        description="Address by which clients reach this server, as its interface descriptions "
        "(`openapi.json`) name it. Unset: the one they were fetched from.",
    )
    provider_org: str | None = Field(
        None, min_length=1, description="Who provides the agents, for interface descriptions."
    )
    provider_url: str | None = Field(
        None, min_length=1, description="The provider's address, for interface descriptions."
    )
    types_module: str | None = Field(
        None,
        description="Module with custom input and output types. Unset: `custom_types.py` beside "
        "the agent file, if there is one.",
    )
    plugin_module: str | None = Field(
        None,
        description="Module with plugin classes. Unset: `custom_plugins.py` beside the agent "
        "file, if there is one.",
    )
    remote_plugin_path: Path | None = Field(None, description="Catalog of remote plugins (YAML).")
    plugin_catalog_module: str | None = Field(
        None, description="Dotted name or file path of the plugin catalog's module."
    )
    plugin_catalog_class: str | None = Field(None, description="Its class.")
    plugin_catalog_file: Path | None = Field(
        None, description="Catalog of plugins and the rules for their tools (JSON)."
    )
    custom_chat_completion_factory_module: str | None = Field(
        None, description="Dotted name or file path of the module that builds model clients."
    )
    custom_chat_completion_factory_class_name: str | None = Field(None, description="Its class.")
    structured_output_transformer_model: str = Field(
        "gpt-4o", description="Model that shapes answers for models without structured output."
    )
    redis_host: str | None = Field(
        None,
        min_length=1,
        description="Redis or Valkey server that keeps conversations, if `TA_STORE` is unset or "
        "`redis:`.",
    )
    redis_port: Port = Field(6379, description="Its port.")
    redis_db: int = Field(0, ge=0, description="The number of its database.")
    redis_ttl: int | None = Field(
        None,
        gt=0,
        description="Seconds after its last change at which a conversation in Redis is gone, "
        "whatever still runs or waits in it. Unset: it is kept.",
    )
    redis_pwd: SecretStr | None = Field(
        None, description="The password of a Redis whose URL holds none."
    )
    redis_ssl: Flag = Field(
        True, description="Speak TLS with the server that `TA_REDIS_HOST` names."
    )
    telemetry_enabled: Flag = Field(False, description="Send traces.")
    otel_endpoint: str | None = Field(
        None, description="Base URL of an OTLP collector, such as `http://collector:4318`."
    )
    otel_protocol: OtelProtocol = Field(
        "http", description="How the collector is spoken to: `http`, or `grpc` (port 4317)."
    )
    metrics_enabled: Flag | None = Field(
        None, description="`true` serves `/metrics`; `false` sends none when telemetry is on."
    )
    logging_enabled: Flag = Field(True, description="Send logs too, when telemetry is on.")

    @model_validator(mode="after")
    def _pairs_are_complete(self) -> Self:
        for one, other in (*PAIRS, *(pair[::-1] for pair in PAIRS)):
            if getattr(self, one) and not getattr(self, other):
                raise ValueError(f"{variable(other)} is not set, but {variable(one)} is")
        if self.authorizer and self.authorizer_module:
            raise ValueError("TA_AUTHORIZER and TA_AUTHORIZER_MODULE are both set; choose one")
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("TA_CLIENT_CERT is not set, but TA_CLIENT_KEY is")
        sources = [name for name in KEY_SOURCES if getattr(self, name) is not None]
        if len(sources) > 1:
            names = " and ".join(variable(name) for name in sources)
            raise ValueError(f"{names} are both set; choose one")
        return self

    @property
    def encrypts(self) -> bool:
        """Whether what is stored is encrypted."""
        return any(getattr(self, name) is not None for name in KEY_SOURCES)


def load_settings(config_paths: Sequence[Path] = (), **overrides: Any) -> Settings:
    """Read the environment and `.env` files; `overrides` that are `None` count as not given.

    Raises:
        ConfigurationError: a variable has an unusable value; the message names it.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    files = _dotenv_files(config_paths)
    settings = _build(files, given)
    if not config_paths and settings.service_config is not None:
        files = _dotenv_files([settings.service_config])
        settings = _build(files, given)
    _warn_of_aliases(_written_values(files))
    modules = {module: getattr(settings, module) for module, _ in PAIRS}
    return settings.model_copy(update=own_modules(modules, variable))


def environment(config_paths: Sequence[Path]) -> dict[str, str]:
    """The environment with the `.env` files' values for what it does not set."""
    values = _written_values(_dotenv_files(config_paths))
    return {name: value for name, value in values.items() if value is not None}


def export_environment(config_paths: Sequence[Path]) -> None:
    """Have plugins and other classes of the operator find in `os.environ` what `.env` says."""
    os.environ.update(environment(config_paths))


def _dotenv_files(config_paths: Iterable[Path]) -> list[Path]:
    """`.env` beside each config, then the current directory's: a later one wins."""
    beside = [path if path.is_dir() else path.parent for path in config_paths]
    files = dict.fromkeys((folder / ".env").absolute() for folder in (*beside, Path.cwd()))
    return [file for file in files if file.is_file()]


def _written_values(files: Sequence[Path]) -> dict[str, str | None]:
    """All variables. The environment wins over the files."""
    values: dict[str, str | None] = {}
    for file in files:
        values.update(dotenv_values(file))
    values.update(os.environ)
    return values | _env_store(values.get(ENV_STORE))


def _env_store(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    try:
        stored = json.loads(text)
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not all(isinstance(one, str) for one in stored.values()):
        raise ConfigurationError(f"{ENV_STORE}: must be a JSON object of variables and texts")
    return stored


def _refuse_unread_lines(file: Path) -> None:
    """Raises ConfigurationError: a line that was to set one of our variables sets nothing."""
    with file.open(encoding="utf-8") as stream:
        for line in parse_stream(stream):
            text = line.original.string
            if line.error and _OURS.search(text):
                number = line.original.line + text[: -len(text.lstrip())].count("\n")
                raise ConfigurationError(f"{file}, line {number}: sets nothing; write NAME=value")


def _build(files: Sequence[Path], overrides: Mapping[str, Any]) -> Settings:
    try:
        for file in files:
            _refuse_unread_lines(file)
        return Settings(_env_file=list(files), **{**_aliased_values(files), **overrides})
    except ValidationError as error:
        raise ConfigurationError("; ".join(_reasons(error))) from None
    except (OSError, UnicodeDecodeError) as error:
        names = ", ".join(map(str, files))
        raise ConfigurationError(f"{names}: cannot be read: {type(error).__name__}") from None


def _aliased_values(files: Sequence[Path]) -> dict[str, Any]:
    """`TEAL_` names. A `TA_` name wins over its alias wherever the two are written."""
    values = _written_values(files)
    stored = _env_store(values.get(ENV_STORE))
    found = {field: stored.get(variable(field)) for field in Settings.model_fields}
    for field in ALIASED_FIELDS:
        found[field] = values.get(variable(field)) or values.get(alias_variable(field))
    catalog = variable("plugin_catalog_file")
    found["plugin_catalog_file"] = values.get(catalog) or values.get(CATALOG_PATH)
    return {field: value for field, value in found.items() if value}


def _reasons(error: ValidationError) -> Iterable[str]:
    for problem in error.errors(include_input=False, include_context=False, include_url=False):
        reason = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            yield reason
            continue
        name = str(problem["loc"][0])
        yield f"{variable(name) if name in Settings.model_fields else name.upper()}: {reason}"


def _warn_of_aliases(values: Mapping[str, str | None]) -> None:
    for field in ALIASED_FIELDS:
        ours, theirs = values.get(variable(field)), values.get(alias_variable(field))
        if ours and theirs and ours != theirs:
            logger.warning(
                "%s and %s are both set and differ; %s is used",
                variable(field),
                alias_variable(field),
                variable(field),
            )
