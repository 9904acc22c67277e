"""From agent files to agents: model, tools, rules and limits put together, and everything checked.

Nothing is opened here. What cannot be used stops start-up with the file and the field.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sk_agents.config.agent_file import AgentFile, AgentSpec, RedactSpec, read_agent_specs
from sk_agents.config.amounts import Amounts
from sk_agents.config.default_agents import LOCAL
from sk_agents.config.settings import Settings, environment
from sk_agents.config.store_url import store_url
from sk_agents.engine.agent import Agent, RunLimits, TitleModel
from sk_agents.engine.models import Price, Usage
from sk_agents.engine.ports import Model
from sk_agents.engine.run.context_window import ContextWindow
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import ConfigurationError
from sk_agents.hitl.hitl_manager import HitlManager
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.hitl.rules import Approvals, read_approvals, refuse_strays
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.llm.scripted import ScriptPlayer
from sk_agents.llm.streamed_chat import RequestOptions
from sk_agents.llm.tokens import context_window
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.redaction import Redactor, secret_values
from sk_agents.spending.limits import TOKENS, Limit, limits_of, strictest
from sk_agents.tools.base_tool import Tool
from sk_agents.tools.catalog import configured_catalog
from sk_agents.tools.mcp.servers import McpServers, McpSource
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.operator_config import filled_headers, filled_value
from sk_agents.tools.plugins import load_plugin_tools
from sk_agents.tools.semantic_kernel_stub import install_kernel_stub
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from sk_agents.llm.custom_factory import CustomModels
    from sk_agents.tools.agents_sdk.member import Member
    from sk_agents.tools.agents_sdk.team import Team
    from sk_agents.tools.builtin.loader import BuiltinTools

logger = logging.getLogger(__name__)

# What a header or field is called that holds one.
SECRET_NAME = re.compile(r"authorization|api-?_?key|secret|password|cookie|token$", re.IGNORECASE)
# So many calls of tools may hang, abandoned, before no further one starts.
MOST_ABANDONED_CALLS = 16


@dataclass(frozen=True, slots=True)
class Clients:
    """What reaches the outside for the agents; opened and closed with the server."""

    models: ModelClients
    remote: RemoteClients
    mcp: McpServers


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent, the name of the model behind it and the file that describes both.

    The same agent keeps other habits where other clients meet it: `agent` in chats, `teal` behind
    Teal's stateful API, `unattended` where no user can be asked. A file has one of the latter two.
    """

    agent: Agent
    model: str
    file: AgentFile
    budget: tuple[Limit, ...] = ()
    soft: float | None = None
    teal: Agent | None = None
    unattended: Agent | None = None
    mcp: McpSource = McpSource(())

    @property
    def is_untaught(self) -> bool:
        """It has tools that its model can hardly use, which looks like a mistake in the tools."""
        return self.model.startswith(LOCAL) and bool(self.agent.toolbox.specs())


def build_agents(
    files: Sequence[AgentFile], settings: Settings, clients: Clients
) -> dict[str, ServedAgent]:
    """Every agent of every file, by the name under which it is asked for.

    Raises:
        ConfigurationError: a model, plugin, catalog or rule that cannot be used: file and field.
    """
    # Also for the files of types that an agent without plugins has.
    install_kernel_stub()
    builder = _AgentBuilder(settings, clients, [file.path for file in files])
    agents: dict[str, ServedAgent] = {}
    for agent_file in files:
        specs = read_agent_specs(agent_file, partial(_filled_block, agent_file.path))
        for field, spec in specs.items():
            agents[_name(agent_file, spec, agents)] = builder.build(agent_file, field, spec)
    return agents


def build_named_model(name: str, file: AgentFile, settings: Settings, clients: Clients) -> Model:
    """A model beside those of the file's agents, as an agent of the file would get it.

    Raises:
        ConfigurationError: it cannot be used.
    """
    spec = AgentSpec(name=name, model=name, system_prompt="")
    return _AgentBuilder(settings, clients, [file.path]).model(file, "spec", spec)


def agent_address(file: AgentFile, name: str | None = None) -> str:
    """The name of an agent behind a Teal API; `name` says which one of a file."""
    return "/".join((file.api_version, file.name, file.version, *((name,) if name else ())))


def _filled_block(path: Path, field: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises ConfigurationError: as the module does that fills it."""
    if given.get("openai_agent") is None:
        return given
    # A dozen modules, which servers without such agents save.
    from sk_agents.tools.agents_sdk.loading import filled_block  # noqa: PLC0415

    return filled_block(path, field, given)


def _load_team(file: AgentFile, field: str, spec: AgentSpec) -> Team | None:
    """Raises ConfigurationError: as the module does that loads it."""
    if spec.openai_agent is None:
        return None
    from sk_agents.tools.agents_sdk.loading import load_team  # noqa: PLC0415  # as above

    return load_team(spec.openai_agent, spec.openai_context, path=file.path, field=field)


def _custom_models(settings: Settings, environ: Mapping[str, str]) -> CustomModels | None:
    """Raises ConfigurationError: as the module does that loads them."""
    if settings.custom_chat_completion_factory_module is None:
        return None
    # With it comes what speaks to the models of Semantic Kernel.
    from sk_agents.llm.custom_factory import custom_models  # noqa: PLC0415

    return custom_models(settings, environ)


class _AgentBuilder:
    def __init__(self, settings: Settings, clients: Clients, paths: Sequence[Path]) -> None:
        self._settings = settings
        self._clients = clients
        self._catalog = configured_catalog(settings)
        self._custom = _custom_models(settings, environment(paths))
        self._threads = WorkerThreads(most_abandoned=MOST_ABANDONED_CALLS)
        self._builtin: BuiltinTools | None = None
        self._secrets = Redactor.of(secret_values(settings, environment(paths)))

    def build(self, file: AgentFile, field: str, spec: AgentSpec) -> ServedAgent:
        approvals_field = f"{field}.approvals"
        approvals = read_approvals(spec.approvals, path=file.path, field=approvals_field)
        if spec.mcp_servers and not file.api_version.startswith("tealagents/"):
            # No user can be asked there, and a server's tools were not chosen one by one.
            raise ConfigurationError(f"{file.path}: {field}.mcp_servers needs tealagents/v1alpha1")
        mcp = self._mcp_source(file, field, spec)
        team = _load_team(file, field, spec)
        toolbox = self._toolbox(file, field, spec, mcp, team)
        refuse_strays(
            approvals,
            toolbox.specs(),
            path=file.path,
            field=approvals_field,
            live=toolbox.live_prefixes,
        )
        if self._catalog is not None:
            self._catalog.refuse_strays(tool.name for tool in toolbox.specs())
        model = self.model(file, field, spec)
        agent = Agent(
            name=file.name,
            model=model,
            toolbox=toolbox,
            policy=self._policy(approvals, toolbox),
            system_prompt=spec.system_prompt,
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
            reasoning_effort=spec.reasoning_effort,
            on_disconnect=spec.on_disconnect or "cancel",
            on_reject=spec.on_reject or approvals.on_reject or "continue",
            limits=_limits(spec, approvals, self._settings),
            context_window=_context_window(spec),
            price=Price(**dict(spec.price)) if spec.price is not None else None,
            redaction=self._redaction(file, field, spec),
            director=team if team is not None and team.needs_direction else None,
            titles=self._titles(file, field, spec, model),
        )
        if team is not None:
            self._bind(team, agent, toolbox, file, field, spec)
        served = ServedAgent(
            agent,
            spec.model,
            file,
            self._budget(file, field, spec),
            spec.budget.soft or self._settings.budget_soft,
            mcp=mcp,
        )
        if file.api_version.startswith("tealagents/"):
            teal = replace(
                agent,
                name=agent_address(file),
                on_disconnect=spec.on_disconnect or "continue",
                on_reject=spec.on_reject or approvals.on_reject or "cancel",
            )
            return replace(served, teal=teal)
        alone = replace(
            agent,
            name=agent_address(file, spec.name if file.kind == "Sequential" else None),
            policy=self._policy(approvals, toolbox, attended=False),
            on_disconnect="continue",
            is_attended=False,
        )
        return replace(served, unattended=alone)

    def _bind(
        self,
        team: Team,
        agent: Agent,
        toolbox: AgentToolbox,
        file: AgentFile,
        field: str,
        spec: AgentSpec,
    ) -> None:
        """Give the agents of a team their models: those that their file names go first."""
        place = f"{file.path}: {field}.openai_agent"
        if spec.redact and team.has_agent_tools:
            raise ConfigurationError(
                f"{place}: redact does not reach the agents that are tools, so it cannot be set"
            )
        has_file_model = spec.model != team.first.agent.model

        def model_of(member: Member) -> Model:
            name = None if has_file_model else member.agent.model
            if name is not None and not isinstance(name, str):
                raise ConfigurationError(
                    f"{member.place}its model is a {type(name).__name__}, which only the SDK can "
                    "call; write model beside openai_agent"
                )
            own = {"model": name or spec.model, **member.settings.client}
            if all(getattr(spec, key) == value for key, value in own.items()):
                return agent.model
            if spec.price is not None and own["model"] != spec.model:
                raise ConfigurationError(
                    f"{member.place}its model {own['model']} may have another price; "
                    "write model beside openai_agent"
                )
            return self.model(file, field, spec.model_copy(update=own))

        team.bind(agent.plan, toolbox, agent.policy, model_of)

    def _titles(
        self, file: AgentFile, field: str, spec: AgentSpec, own: Model
    ) -> TitleModel | None:
        """What names the agent's chats. A model that the file names is reached as the agent's own;
        one that the setting names is reached as any agent would that has nothing but its name."""
        price = Price(**dict(spec.price)) if spec.price is not None else None
        if spec.titles is not None:
            if isinstance(spec.titles, bool):
                return TitleModel(own, price=price) if spec.titles else None
            named = spec.model_copy(update={"model": spec.titles, "price": None})
            return TitleModel(self.model(file, field, named), spec.titles)
        wanted = self._settings.titles
        # What a script says follows from what was said before: a question more would change it.
        if wanted in (None, "off") or isinstance(own, ScriptPlayer):
            return None
        if wanted == "on":
            return TitleModel(own, price=price)
        other = AgentSpec(name=wanted, model=wanted, system_prompt="")
        return TitleModel(self.model(file, "TA_TITLES", other), wanted)

    def _redaction(self, file: AgentFile, field: str, spec: AgentSpec) -> Redactor | None:
        if spec.redact is False:
            return None
        wanted = RedactSpec() if spec.redact is True else spec.redact
        if wanted.mode != "vault":
            return self._secrets.for_prose(wanted.kinds, wanted.patterns)
        if not self._settings.encrypts:
            raise ConfigurationError(
                f"{file.path}: {field}.redact: mode vault keeps secrets in the store, so it needs "
                "one that is encrypted: set TA_ENCRYPTION_KEYS (teal encryption-key makes one)"
            )
        return self._secrets.for_prose(wanted.kinds, wanted.patterns, wanted.tools or ("*",))

    def _budget(self, file: AgentFile, field: str, spec: AgentSpec) -> tuple[Limit, ...]:
        settings, own, currency = self._settings, spec.budget, spec.price and spec.price.currency
        if settings.tokens_per_hour is not None:
            hour = Amounts(tokens=settings.tokens_per_hour)
        else:
            hour = Amounts()
        of_file = [
            *limits_of("run", own.run, is_own=True),
            *limits_of("user", own.user, is_own=True),
            *limits_of("agent", own.agent, is_own=True),
        ]
        of_server = [
            *limits_of("run", settings.budget_run),
            *limits_of("user", settings.budget_user),
            *limits_of("agent", settings.budget_agent),
            *limits_of("day", settings.budget_day),
            *limits_of("hour", hour),
        ]
        for limit in (*of_file, *of_server):
            if limit.unit in (TOKENS, currency):
                continue
            where = f"{file.path}: {field}"
            if currency is not None:
                raise ConfigurationError(
                    f"{where}.price is in {currency}, but a budget is in {limit.unit}"
                )
            if limit.is_own:
                raise ConfigurationError(f"{where}.budget needs a price to count {limit.unit}")
            logger.warning("%s has no price: budgets of money do not count it", where)
        limits = strictest([*of_file, *of_server])
        _warn_of_small(f"{file.path}: {field}", limits, spec)
        return limits

    def _mcp_source(self, file: AgentFile, field: str, spec: AgentSpec) -> McpSource:
        workspaces = None
        if spec.mcp_servers and spec.builtin is not None:
            builtin = self._builtin_room()
            workspaces = builtin.workspaces(spec.builtin, path=file.path, field=f"{field}.builtin")
        return self._clients.mcp.source(
            spec.mcp_servers,
            agent_file=file.path,
            field=f"{field}.mcp_servers",
            workspaces=workspaces,
        )

    def _toolbox(
        self,
        file: AgentFile,
        field: str,
        spec: AgentSpec,
        mcp: McpSource,
        team: Team | None,
    ) -> AgentToolbox:
        plugins = load_plugin_tools(
            spec.plugins, settings=self._settings, agent_file=file.path, threads=self._threads
        )
        remote: Sequence[Tool] = []
        if spec.remote_plugins or self._settings.remote_plugin_path is not None:
            from sk_agents.tools.openapi.services import load_remote_tools  # noqa: PLC0415

            remote = load_remote_tools(
                spec.remote_plugins,
                settings=self._settings,
                agent_file=file.path,
                clients=self._clients.remote,
            )
        builtin: Sequence[Tool] = []
        if spec.builtin is not None:
            builtin = self._builtin_room().load(
                spec.builtin, path=file.path, field=f"{field}.builtin"
            )
        sdk = team.tools if team is not None else ()
        return AgentToolbox(builtin, plugins, sdk, remote, mcp)

    def _builtin_room(self) -> BuiltinTools:
        if self._builtin is None:
            # It takes 30 ms to import, which servers without built-in tools save.
            from sk_agents.tools.builtin.loader import BuiltinTools  # noqa: PLC0415

            self._builtin = BuiltinTools(
                self._threads,
                keep_out=_own_files(self._settings),
                network=self._clients.models.network,
            )
        return self._builtin

    def model(self, file: AgentFile, field: str, spec: AgentSpec) -> Model:
        environ = environment([file.path])
        try:
            named = ModelSpec(
                spec.model,
                base_url=spec.base_url,
                api_key_env=spec.api_key_env,
                folder=file.path.parent,
                api=spec.api,
                api_version=spec.api_version,
                options=model_options(spec, file.path.parent, environ),
                sees_images=spec.sees_images,
                reads_pdfs=spec.reads_pdfs,
            )
            custom = self._custom.model(spec.model, spec.name) if self._custom else None
            if custom is not None:
                return custom
            model = build_model(named, self._clients.models, environ)
        except ConfigurationError as error:
            raise ConfigurationError(f"{file.path}: {field}.model: {error}") from error
        if isinstance(model, ScriptPlayer):
            return model.slowed(self._settings.script_pace)
        return model

    def _policy(
        self, approvals: Approvals, toolbox: AgentToolbox, *, attended: bool = True
    ) -> HitlManager:
        rules: dict[str, Any] = {"attended": attended, "declared": toolbox.requires_approval}
        if self._catalog is not None:
            rules["catalog"] = self._catalog.requires_hitl

        def find_spec(name: str) -> ToolSpec | None:
            return next((spec for spec in toolbox.specs() if spec.name == name), None)

        return HitlManager(ApprovalPolicy(approvals, **rules), find_spec)


def model_options(spec: AgentSpec, folder: Path, environ: Mapping[str, str]) -> RequestOptions:
    """What the file says about every request to its model, references filled in.

    Raises:
        ConfigurationError: a variable is not set, or a secret stands in the file itself.
    """
    for block in (spec.headers, spec.query, spec.extra_body):
        _refuse_secrets(block)
    headers = {name.strip(): value for name, value in spec.headers.items()}
    certificate = None
    if spec.client_cert is not None:
        key = _path(spec.client_key, folder, environ) if spec.client_key is not None else None
        certificate = ClientCertificate(_path(spec.client_cert, folder, environ), key)
    elif spec.client_key is not None:
        raise ConfigurationError("client_cert is missing, which client_key needs")
    return RequestOptions(
        headers=filled_headers(headers, "", environ),
        query={
            name: filled_value(value, f"query.{name}", environ)
            for name, value in spec.query.items()
        },
        extra_body=_filled(spec.extra_body, environ),
        top_p=spec.top_p,
        stop=spec.stop,
        seed=spec.seed,
        certificate=certificate,
    )


def _refuse_secrets(block: Mapping[str, Any]) -> None:
    for name, value in block.items():
        if isinstance(value, str) and SECRET_NAME.search(name) and "${" not in value:
            raise ConfigurationError(f"{name}: a secret does not belong here; write ${{VARIABLE}}")


def _path(text: str, folder: Path, environ: Mapping[str, str]) -> Path:
    return folder / Path(filled_value(text, "client_cert", environ)).expanduser()


def _filled(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return filled_value(value, "extra_body", environ)
    if isinstance(value, Mapping):
        return {name: _filled(inner, environ) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, environ) for inner in value]
    return value


def _own_files(settings: Settings) -> list[Path]:
    """What no workspace may hold."""
    store = urlsplit(store_url(settings))
    return [Path(unquote(store.path))] if store.scheme in {"sqlite", "file"} else []


def _limits(spec: AgentSpec, approvals: Approvals, settings: Settings) -> RunLimits:
    given = spec.limits.model_dump(exclude_none=True)
    given.setdefault("tool_calls", settings.tool_calls_per_run)
    given.setdefault("approval_seconds", approvals.expires_after)
    return replace(RunLimits(), **{key: value for key, value in given.items() if value is not None})


def _warn_of_small(where: str, limits: Sequence[Limit], spec: AgentSpec) -> None:
    """A budget that is smaller than what one call reserves for its answer refuses every turn."""
    answer = Usage(completion_tokens=spec.max_tokens or _context_window(spec).reserve)
    reserved = Price(**dict(spec.price)).applied(answer) if spec.price is not None else answer
    for limit in limits:
        if limit.amount(reserved) > limit.most:
            logger.warning(
                "%s: every turn will be refused: the budget %s of %s is smaller than what one call "
                "reserves for its answer, %s; raise it, or set max_tokens",
                where,
                limit.scope,
                limit.shown(limit.most),
                limit.shown(limit.amount(reserved)),
            )


def _context_window(spec: AgentSpec) -> ContextWindow:
    window = context_window(spec.model, spec.context.window)
    reserve = spec.context.reserve
    if reserve is None:
        reserve = spec.max_tokens or ContextWindow().reserve
    return ContextWindow(window, min(reserve, window // 2))


def _name(file: AgentFile, spec: AgentSpec, taken: Mapping[str, ServedAgent]) -> str:
    """The file's name; further agents of one file, and of one name, say which they are."""
    if file.kind == "Sequential":
        return f"{file.name}/{spec.name}"
    return file.name if file.name not in taken else f"{file.name}:{file.version}"
