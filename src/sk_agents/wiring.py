"""The only file that knows which back rooms are in use.

Building checks the whole configuration and opens nothing; opening puts every resource into the
caller's exit stack, so that what was opened is closed in reverse order, also when a later one
cannot be opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.agent_spec import AgentSpec, read_agent_specs
from sk_agents.config.settings import Settings, environment
from sk_agents.config.store_url import own_class_url, store_url
from sk_agents.engine.agent import Agent, Limits
from sk_agents.engine.clock import SystemClock
from sk_agents.engine.context import Context
from sk_agents.engine.engine import Engine
from sk_agents.engine.ids import RandomIds
from sk_agents.engine.ports import Model, Store
from sk_agents.exceptions import ConfigurationError
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.hitl.rules import Approvals, read_approvals, refuse_strays
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.llm.tokens import context_window
from sk_agents.persistence.ephemeral_store import EphemeralStore
from sk_agents.persistence.owner import new_owner
from sk_agents.persistence.persistence_factory import PersistenceFactory
from sk_agents.persistence.store_factory import open_store
from sk_agents.persistence.task_bridge import TaskBridgeStore
from sk_agents.signals.local import LocalSignals
from sk_agents.tools.catalog import Catalog, load_catalog
from sk_agents.tools.plugins import load_plugin_tools
from sk_agents.tools.threads import CallThreads
from sk_agents.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Stores:
    """`tasks` keeps Teal's tasks: the operator's own class if one is named, else `main`."""

    main: Store
    tasks: Store


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent, the name of the model behind it and the file that describes both.

    The same agent keeps other habits where other clients meet it: `agent` in chats, `teal` behind
    Teal's stateful API, `unattended` where nobody can be asked. A file has one of the latter two.
    """

    agent: Agent
    model: str
    file: AgentFile
    teal: Agent | None = None
    unattended: Agent | None = None


@dataclass(frozen=True, slots=True)
class House:
    """`agents` are in the order of their files, by the name under which a chat asks for them."""

    stores: Stores
    clients: ModelClients
    agents: Mapping[str, ServedAgent]


@dataclass(frozen=True, slots=True)
class Engines:
    """`main` serves chats, `tasks` Teal's tasks (mostly the same), `unattended` keeps nothing."""

    main: Engine
    tasks: Engine
    unattended: Engine | None


def build_authorizer(settings: Settings) -> RequestAuthorizer:
    return AuthorizerFactory(settings).get_authorizer()


def build_stores(settings: Settings) -> Stores:
    """The stores to open.

    Raises:
        ConfigurationError: the URL names no store we have, or the class cannot be used.
    """
    main = open_store(store_url(settings))
    if settings.persistence_module is None or own_class_url(settings) is not None:
        return Stores(main, main)
    return Stores(main, TaskBridgeStore(PersistenceFactory(settings).get_persistence_manager()))


def build_house(settings: Settings, files: Sequence[AgentFile]) -> House:
    """Everything the configuration asks for, checked.

    Raises:
        ConfigurationError: something of it cannot be used.
    """
    clients = ModelClients()
    return House(build_stores(settings), clients, build_agents(files, settings, clients))


async def open_house(stack: AsyncExitStack, house: House) -> Engines:
    """Open it into the caller's stack; the engines drive runs until the stack is left.

    Raises:
        StoreError: a store cannot be opened.
        ConfigurationError: the operator's own persistence class loses what it is given.
    """
    await stack.enter_async_context(house.clients)
    chats = {name: served.agent for name, served in house.agents.items()}
    teal = {agent.name: agent for served in house.agents.values() if (agent := served.teal)}
    alone = {agent.name: agent for served in house.agents.values() if (agent := served.unattended)}
    stores = house.stores
    if stores.tasks is stores.main:
        main = tasks = await _open_engine(stack, stores.main, {**chats, **teal})
    else:
        main = await _open_engine(stack, stores.main, chats)
        tasks = await _open_engine(stack, stores.tasks, teal)
    unattended = await _open_engine(stack, EphemeralStore(), alone) if alone else None
    return Engines(main, tasks, unattended)


async def _open_engine(stack: AsyncExitStack, store: Store, agents: Mapping[str, Agent]) -> Engine:
    await stack.enter_async_context(store)
    engine = Engine(
        store,
        agents,
        signals=LocalSignals(),
        clock=SystemClock(),
        ids=RandomIds(),
        owner=new_owner(),
    )
    return await stack.enter_async_context(engine)


def build_agents(
    files: Sequence[AgentFile], settings: Settings, clients: ModelClients
) -> dict[str, ServedAgent]:
    """Every agent of every file, by the name under which it is asked for.

    Raises:
        ConfigurationError: a model, plugin, catalog or rule that cannot be used: file and field.
    """
    file = settings.plugin_catalog_file
    builder = _AgentBuilder(settings, clients, load_catalog(file) if file is not None else None)
    agents: dict[str, ServedAgent] = {}
    for agent_file in files:
        for field, spec in read_agent_specs(agent_file).items():
            agents[_name(agent_file, spec, agents)] = builder.build(agent_file, field, spec)
    return agents


def agent_address(file: AgentFile, name: str | None = None) -> str:
    """The name of an agent behind a Teal API; `name` tells apart those of one file."""
    return "/".join((file.api_version, file.name, file.version, *((name,) if name else ())))


class _AgentBuilder:
    def __init__(self, settings: Settings, clients: ModelClients, catalog: Catalog | None) -> None:
        self._settings = settings
        self._clients = clients
        self._catalog = catalog
        self._threads = CallThreads()

    def build(self, file: AgentFile, field: str, spec: AgentSpec) -> ServedAgent:
        approvals_field = f"{field}.approvals"
        approvals = read_approvals(spec.approvals, path=file.path, field=approvals_field)
        toolbox = Toolbox(
            load_plugin_tools(
                spec.plugins,
                settings=self._settings,
                agent_file=file.path,
                threads=self._threads,
            )
        )
        refuse_strays(approvals, toolbox.specs(), path=file.path, field=approvals_field)
        if self._catalog is not None:
            self._catalog.refuse_strays(tool.name for tool in toolbox.specs())
        agent = Agent(
            name=file.name,
            model=self._model(file, field, spec),
            toolbox=toolbox,
            policy=self._policy(approvals, toolbox),
            system_prompt=spec.system_prompt,
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
            reasoning_effort=spec.reasoning_effort,
            on_disconnect=spec.on_disconnect or "cancel",
            on_reject=spec.on_reject or approvals.on_reject or "continue",
            limits=_limits(spec, approvals),
            context=_context(spec),
        )
        served = ServedAgent(agent, spec.model, file)
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
        )
        return replace(served, unattended=alone)

    def _model(self, file: AgentFile, field: str, spec: AgentSpec) -> Model:
        named = ModelSpec(
            spec.model,
            base_url=spec.base_url,
            api_key_env=spec.api_key_env,
            folder=file.path.parent,
        )
        try:
            return build_model(named, self._clients, environment([file.path]))
        except ConfigurationError as error:
            raise ConfigurationError(f"{file.path}: {field}.model: {error}") from error

    def _policy(
        self, approvals: Approvals, toolbox: Toolbox, *, attended: bool = True
    ) -> ApprovalPolicy:
        rules: dict[str, Any] = {"attended": attended}
        if attended:
            rules["declared"] = toolbox.requires_approval
        if self._catalog is not None:
            rules["catalog"] = self._catalog.requires_hitl
        return ApprovalPolicy(approvals, **rules)


def _limits(spec: AgentSpec, approvals: Approvals) -> Limits:
    given = spec.limits.model_dump(exclude_none=True)
    given.setdefault("approval_seconds", approvals.expires_after)
    return replace(Limits(), **{key: value for key, value in given.items() if value is not None})


def _context(spec: AgentSpec) -> Context:
    window = context_window(spec.model, spec.context.window)
    reserve = spec.context.reserve
    if reserve is None:
        reserve = spec.max_tokens or Context().reserve
    return Context(window, min(reserve, window // 2))


def _name(file: AgentFile, spec: AgentSpec, taken: Mapping[str, ServedAgent]) -> str:
    """The file's name; further agents of one file, and of one name, say which they are."""
    if file.kind == "Sequential":
        return f"{file.name}/{spec.name}"
    return file.name if file.name not in taken else f"{file.name}:{file.version}"
