"""The only file that knows which back rooms are in use.

Building checks the whole configuration and opens nothing; opening puts every resource into the
caller's exit stack, so that what was opened is closed in reverse order, also when a later one
cannot be opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sk_agents.agent_assembly import Clients, ServedAgent, build_agents
from sk_agents.audit.reading import AuditQuery, last_checkpoint, newest
from sk_agents.audit.server_log import ServerLog
from sk_agents.audit.table_watch import Table, TableWatch
from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.default_agents import AgentOffer, tour_alone, tour_and_assistant
from sk_agents.config.settings import Settings, environment
from sk_agents.config.store_url import completed_url, own_class_url, store_url
from sk_agents.engine.agent import Agent
from sk_agents.engine.defaults import NoCopies, RandomIds, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import Durability, ThreadStatus
from sk_agents.engine.ports import Clock, PortableStore, Store, WeakenedStore
from sk_agents.engine.threads.retention import EXPIRED, Pruned, Pruner, RetentionRules
from sk_agents.exceptions import ConfigurationError, StoreEncrypted
from sk_agents.llm.default_model import NoModel, choose_model
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.streamed_chat import StreamedChat
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.network import configured_network
from sk_agents.persistence.liveness import new_owner
from sk_agents.persistence.memory.store import EphemeralStore
from sk_agents.persistence.persistence_factory import PersistenceFactory
from sk_agents.persistence.store_factory import check_exists, open_store, own_store
from sk_agents.persistence.store_migration import Migration as Migration
from sk_agents.persistence.store_migration import Told, migrate_store
from sk_agents.persistence.tasks.bridge import TaskBridgeStore
from sk_agents.signals.signals_factory import check_signals, open_exchange
from sk_agents.spending.allowances import Allowance
from sk_agents.spending.budgets import AgentBudget, StoreBudget
from sk_agents.spending.streams import StreamCensus
from sk_agents.spending.usage import UsageLedger
from sk_agents.telemetry.run_logs import RunLogs
from sk_agents.telemetry.spans import current_traceparent
from sk_agents.telemetry.telemetry import Telemetry, build_telemetry
from sk_agents.tools.mcp.context import McpContext
from sk_agents.tools.mcp.pins import Pins, pins_path
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.mcp.sign_ins import SURFACE as SIGN_INS
from sk_agents.tools.mcp.sign_ins import SignInRecords
from sk_agents.tools.mcp.signing_in import McpSignIns
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.wire.views import AuditReport, Checkpoint

if TYPE_CHECKING:
    from sk_agents.audit.checkpoints import Signer
    from sk_agents.persistence.encryption import EncryptingCodec
    from sk_agents.persistence.interactions.copies import InteractionCopies
    from sk_agents.persistence.interactions.user_interactions import UserInteractions


@dataclass(frozen=True, slots=True)
class Stores:
    """`tasks` keeps Teal's tasks: the operator's own class if one is named, else `main`.

    `signals_url` says how the instances that share `main` reach each other: its own URL unless the
    operator names another.
    """

    main: Store
    tasks: Store
    signals_url: str | None
    password_command: str | None = None
    # Of the encryption keys, the one that encrypts first; an id says nothing about its key.
    key_ids: Sequence[str] = ()
    required_durability: Durability | None = None
    # The operator's own class that gets a copy of each interaction.
    interactions: UserInteractions | None = None

    def check_durability(self) -> None:
        """Raises ConfigurationError: one that is open keeps less than the operator requires."""
        for store in (self.main, self.tasks):
            if self.required_durability is None or store.durability >= self.required_durability:
                continue
            name = str(store) if store is self.main else "the class of TA_PERSISTENCE_CLASS"
            weaknesses = store.weaknesses if isinstance(store, WeakenedStore) else ()
            why = "".join(f"; {weakness}" for weakness in weaknesses)
            raise ConfigurationError(
                f"TA_REQUIRED_DURABILITY is {self.required_durability}, and {name} is of class"
                f" {store.durability}{why}"
            )

    def checked(self, ping: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
        """A ping that also finds out whether the stores have become too weak since the start."""

        async def pinged() -> None:
            await ping()
            self.check_durability()

        return pinged


@dataclass(frozen=True, slots=True)
class Spending:
    """What may be spent, what has been spent, and how often a user may call."""

    budget: StoreBudget
    ledger: UsageLedger
    requests: Allowance | None


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """With what, how often and where checkpoints of the audit log are written."""

    signer: Signer
    seconds: float
    path: Path | None


@dataclass(frozen=True, slots=True)
class ServerParts:
    """`agents` are in the order of their files, by the name under which a chat asks for them."""

    stores: Stores
    clients: Clients
    agents: Mapping[str, ServedAgent]
    disconnect_grace: float
    conversation_bytes: int
    telemetry: Telemetry | None
    spending: Spending
    retention: RetentionRules | None = None
    checkpoints: CheckpointPlan | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """`main` serves chats, `tasks` Teal's tasks (mostly the same), `unattended` keeps nothing.

    `audit` is the log of what happens at the server, in the store of the chats. `stores` are those
    of the engines. `copies` are the operator's own of the chats, if there are any.
    """

    main: Engine
    tasks: Engine
    unattended: Engine | None
    audit: ServerLog
    stores: Sequence[Store]
    copies: InteractionCopies | None = None

    async def audit_report(
        self, since: datetime, user_id: str | None, agent: str | None, limit: int
    ) -> AuditReport:
        """The newest entries of the audit, with what this process has counted so far."""
        await self.audit.write_counted()
        return await newest(self.audit.store, AuditQuery(since, user_id, agent), limit)

    async def last_checkpoint(self) -> Checkpoint | None:
        return await last_checkpoint(self.audit.store)

    @property
    def each(self) -> list[Engine]:
        return [engine for engine in {self.main, self.tasks, self.unattended} if engine is not None]

    def drain(self) -> None:
        for engine in self.each:
            engine.drain()

    async def broken(self) -> None:
        """Returns once the store of one of them must not be used on: the process has to end."""
        waiting = [asyncio.ensure_future(engine.broken()) for engine in self.each]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()


def build_authorizer(settings: Settings) -> RequestAuthorizer:
    return AuthorizerFactory(settings).get_authorizer()


def build_context(agents: Mapping[str, ServedAgent]) -> McpContext:
    """What users find at the MCP servers of each agent."""
    return McpContext({name: served.mcp for name, served in agents.items()})


def build_sign_ins(parts: ServerParts) -> McpSignIns:
    """Users at the MCP servers of each agent, by every name an engine knows it by."""
    sources = {
        name: served.mcp
        for label, served in parts.agents.items()
        for name in (label, *([served.teal.name] if served.teal is not None else []))
    }
    return McpSignIns(parts.clients.mcp, sources)


def sign_in_document(base_url: str) -> Mapping[str, Any]:
    from sk_agents.tools.mcp.oauth import client_document  # noqa: PLC0415  # the MCP library

    return client_document(base_url)


def _sign_in_records(settings: Settings, store: Store) -> SignInRecords | None:
    """Tokens are kept encrypted, or in memory alone, or not at all."""
    if settings.encrypts or store_url(settings).startswith("memory:"):
        return SignInRecords(store, RandomIds())
    return None


def build_pins(settings: Settings) -> Pins:
    """What operators have agreed to of MCP servers' tools; beside the store."""
    return Pins(pins_path(store_url(settings)))


def build_stores(settings: Settings) -> Stores:
    """The stores to open.

    Raises:
        ConfigurationError: the URL names no store we have, or the class cannot be used.
    """
    password_command = settings.postgres_password_command
    codec = store_codec(settings)
    key_ids = codec.keys.ids if codec is not None else ()
    main = _main_store(settings, codec)
    signals_url = None if settings.store_module is not None else store_url(settings)
    if settings.signals is not None:
        signals_url = check_signals(completed_url(settings.signals, settings))
    required = Durability(settings.required_durability) if settings.required_durability else None
    interactions = _own_interactions(settings)
    if settings.persistence_module is None or own_class_url(settings) is not None:
        return Stores(main, main, signals_url, password_command, key_ids, required, interactions)
    if settings.encrypts:
        raise ConfigurationError(
            "TA_PERSISTENCE_MODULE and TA_ENCRYPTION_KEYS are both set: a class of your own is "
            "given each task in plain text. Encrypt inside the class, or have the store keep tasks"
        )
    own = TaskBridgeStore(
        PersistenceFactory(settings).get_persistence_manager(),
        settle=settings.persistence_settle,
        build_another=lambda: PersistenceFactory(settings).get_persistence_manager(),
    )
    return Stores(
        main,
        own,
        signals_url,
        password_command,
        required_durability=required,
        interactions=interactions,
    )


def _main_store(settings: Settings, codec: EncryptingCodec | None) -> Store:
    if settings.store_module is not None:
        return own_store(settings)
    password_command = settings.postgres_password_command
    return open_store(store_url(settings), codec=codec, password_command=password_command)


def existing_store(settings: Settings) -> Store:
    """The store of the chats, unopened, for those who read what is kept in it.

    Raises:
        ConfigurationError: there is none; or as `build_stores`.
    """
    if settings.store_module is None:
        check_exists(store_url(settings))
    return _main_store(settings, store_codec(settings))


async def copy_store(
    settings: Settings, source_url: str, target_url: str, told: Told, *, merge: bool = False
) -> Migration:
    """Take all threads of one store to another, which is encrypted if there are keys; see
    `migrate_store`.

    Raises:
        ConfigurationError: a URL names no store that can be copied, there is none to copy, or the
            target is not empty.
        StoreError: one of them cannot be opened.
    """
    if source_url == target_url:
        raise ConfigurationError("FROM and TO are the same store")
    check_exists(completed_url(source_url, settings))
    codec = store_codec(settings)
    async with AsyncExitStack() as stack:
        try:
            source = await stack.enter_async_context(_portable_store(settings, source_url, None))
        except StoreEncrypted:
            if codec is None:
                raise
            source = await stack.enter_async_context(_portable_store(settings, source_url, codec))
        target = await stack.enter_async_context(_portable_store(settings, target_url, codec))
        return await migrate_store(source, target, told, merge=merge)


def _portable_store(settings: Settings, url: str, codec: EncryptingCodec | None) -> PortableStore:
    store = open_store(
        completed_url(url, settings),
        codec=codec,
        password_command=settings.postgres_password_command,
    )
    if not isinstance(store, PortableStore):
        raise ConfigurationError(f"{store} keeps nothing that could be copied")
    return store


def store_codec(settings: Settings) -> EncryptingCodec | None:
    """How the store writes threads; `None` for plain text. Runs the command that prints the keys.

    Raises:
        ConfigurationError: the encryption keys cannot be used.
    """
    if not settings.encrypts:
        return None
    from sk_agents.persistence.key_sources import configured_codec  # noqa: PLC0415  # cryptography

    return configured_codec(settings)


async def default_offer(settings: Settings) -> AgentOffer:
    """The agents to serve when none is configured, on what this machine has.

    Raises:
        ConfigurationError: `TA_MODEL` names a model that cannot be used.
    """
    chosen = await choose_model(settings.model, environment(()))
    if isinstance(chosen, NoModel):
        return tour_alone(chosen.notes)
    return tour_and_assistant(chosen.agent_fields(), chosen.because)


def build_parts(settings: Settings, files: Sequence[AgentFile]) -> ServerParts:
    """Everything the configuration asks for, checked.

    Raises:
        ConfigurationError: something of it cannot be used.
    """
    trace = current_traceparent if settings.telemetry_enabled else None
    network = configured_network(settings, [file.path for file in files])
    stores = build_stores(settings)
    clients = Clients(
        ModelClients(trace=trace, network=network),
        RemoteClients(trace=trace, network=network),
        McpServers(
            build_pins(settings),
            network=network,
            records=_sign_in_records(settings, stores.main),
        ),
    )
    agents = build_agents(files, settings, clients)
    telemetry = build_telemetry(settings, model_names(agents), model_addresses(agents))
    return ServerParts(
        stores,
        clients,
        agents,
        settings.disconnect_grace,
        settings.conversation_memory_mb * 1024 * 1024,
        telemetry,
        build_spending(settings, agents, stores.main),
        retention_rules(settings.retention) if settings.retention else None,
        checkpoint_plan(settings, stores.main),
    )


def checkpoint_plan(settings: Settings, store: Store) -> CheckpointPlan | None:
    """Raises ConfigurationError: the settings do not fit each other, or there is no such key."""
    if settings.audit_key_file is None:
        if settings.audit_checkpoints_file is not None:
            raise ConfigurationError(
                "TA_AUDIT_CHECKPOINTS_FILE is set and TA_AUDIT_KEY_FILE is not: a checkpoint is "
                "signed; `teal audit key` makes a key"
            )
        return None
    if not isinstance(store, PortableStore):
        raise ConfigurationError(
            f"TA_AUDIT_KEY_FILE is set, and {store} keeps nothing that could be verified later"
        )
    from sk_agents.audit.checkpoints import Signer  # noqa: PLC0415  # cryptography

    signer = Signer.read(settings.audit_key_file)
    return CheckpointPlan(
        signer, settings.audit_checkpoint_seconds, settings.audit_checkpoints_file
    )


def retention_rules(ages: Mapping[str, float]) -> RetentionRules:
    """For how many seconds threads are kept, by status or `expired`, as rules."""
    by_status = {ThreadStatus(name): age for name, age in ages.items() if name != EXPIRED}
    return RetentionRules(by_status, ages.get(EXPIRED), spared=frozenset({SIGN_INS}))


async def prune_store(
    settings: Settings,
    ages: Mapping[str, float],
    told: Callable[[int, int], None],
    *,
    dry_run: bool = False,
) -> Pruned:
    """Remove what has become too old, or only count it.

    Raises:
        ConfigurationError: there is no store, or it keeps nothing.
        StoreError: it cannot be opened.
    """
    store = existing_store(settings)
    if not isinstance(store, PortableStore):
        raise ConfigurationError(f"{store} keeps nothing that could be removed")
    done = Pruned()
    async with store as opened, ServerLog(opened, RandomIds()) as audit:
        own = _own_interactions(settings)
        copies = _copies(own, opened) if own is not None else NoCopies()
        pruner = Pruner(opened, retention_rules(ages), SystemClock(), audit, copies)
        after: str | None = ""
        while after is not None:
            after = await pruner.page(after, done, dry_run=dry_run)
            told(done.seen, done.removed.total())
    return done


def build_spending(
    settings: Settings,
    agents: Mapping[str, ServedAgent],
    store: Store,
    clock: Clock | None = None,
) -> Spending:
    """What may be spent, counted in the store of the chats whichever API is asked."""
    clock = clock or SystemClock()
    ledger = UsageLedger(store, clock, settings.usage_days)

    def allowance(name: str, what: str, most: int | None, seconds: int) -> Allowance | None:
        if most is None:
            return None
        return Allowance(store, clock, name=name, what=what, most=most, seconds=seconds)

    budgets = {
        name: AgentBudget(label, served.model, served.budget, served.soft)
        for label, served in agents.items()
        for name in (label, *(one.name for one in (served.teal, served.unattended) if one))
    }
    calls = allowance("tool_calls", "calls of tools", settings.tool_calls_per_hour, 3600)
    return Spending(
        StoreBudget(store, clock, budgets, ledger, calls),
        ledger,
        allowance("requests", "requests", settings.requests_per_minute, 60),
    )


@dataclass(frozen=True, slots=True)
class OutboundAddress:
    """An address that the configuration names, and what is asked for there."""

    purpose: str
    url: str
    certificate: ClientCertificate | None = None


def outbound_addresses(
    parts: ServerParts, authorizer: RequestAuthorizer | None
) -> list[OutboundAddress]:
    """Every address that the configuration names, each origin once for each purpose."""
    found = []
    for served in parts.agents.values():
        if isinstance(served.agent.model, StreamedChat):
            endpoint = served.agent.model.endpoint
            purpose = f"model {served.model}"
            found.append(OutboundAddress(purpose, endpoint.base_url, endpoint.options.certificate))
    for name, url in parts.clients.mcp.addresses():
        found.append(OutboundAddress(f"mcp server {name}", url))
    for name, url in parts.clients.remote.addresses.items():
        found.append(OutboundAddress(f"remote plugin {name}", url))
    if authorizer is not None:
        found.extend(OutboundAddress("token issuer", url) for url in authorizer.addresses())
    return list(dict.fromkeys(found))


def stream_census(
    parts: ServerParts, here: Mapping[str, int], told: Callable[[Mapping[str, int]], None]
) -> StreamCensus:
    """How many streams users hold open at other instances; to be entered once the store is."""
    return StreamCensus(parts.stores.main, SystemClock(), here, told)


def model_names(agents: Mapping[str, ServedAgent]) -> dict[str, str]:
    """The model of each agent, by every name an engine knows it by."""
    return {
        agent.name: served.model
        for served in agents.values()
        for agent in (served.agent, served.teal, served.unattended)
        if agent is not None
    }


def model_addresses(agents: Mapping[str, ServedAgent]) -> dict[str, str]:
    """Where the model of each agent is asked, where that is known."""
    return {
        agent.name: agent.model.endpoint.base_url
        for served in agents.values()
        for agent in (served.agent, served.teal, served.unattended)
        if agent is not None and isinstance(agent.model, StreamedChat)
    }


async def open_engines(
    stack: AsyncExitStack, parts: ServerParts, tables: Mapping[str, Table] | None = None
) -> Engines:
    """Open the parts into the caller's stack; the engines drive runs until the stack is left.
    The audit notes each change of the `tables`.

    Raises:
        StoreError: a store cannot be opened.
        ConfigurationError: the operator's own persistence class loses what it is given, or a
            store keeps less than is required.
    """
    if parts.telemetry is not None:
        await stack.enter_async_context(parts.telemetry)
    await stack.enter_async_context(parts.clients.models)
    await stack.enter_async_context(parts.clients.remote)
    chats = {name: served.agent for name, served in parts.agents.items()}
    teal = {agent.name: agent for served in parts.agents.values() if (agent := served.teal)}
    alone = {agent.name: agent for served in parts.agents.values() if (agent := served.unattended)}
    stores = parts.stores
    await stack.enter_async_context(stores.main)
    stores.check_durability()
    # It keeps what users have signed in to in that store.
    await stack.enter_async_context(parts.clients.mcp)
    # Left after the engines, whose runs settle what they have used, and before the store.
    await stack.enter_async_context(parts.spending.ledger)
    await stack.enter_async_context(parts.spending.budget)
    audit = await _open_audit(stack, parts, tables or {})
    copies = await _open_copies(stack, parts)
    if stores.tasks is stores.main:
        both = {**chats, **teal}
        main = tasks = await _open_engine(
            stack, parts, audit, stores.main, both, copies=copies, shared=True
        )
    else:
        main = await _open_engine(
            stack, parts, audit, stores.main, chats, copies=copies, shared=True
        )
        await stack.enter_async_context(stores.tasks)
        tasks = await _open_engine(stack, parts, audit, stores.tasks, teal)
    # It is in memory: there is nothing to open.
    forgetful = EphemeralStore()
    unattended = None
    if alone:
        unattended = await _open_engine(stack, parts, audit, forgetful, alone)
    if parts.telemetry is not None:
        parts.telemetry.watch_store("main", stores.main)
        if stores.tasks is not stores.main:
            parts.telemetry.watch_store("tasks", stores.tasks)
    kept = [stores.main] if stores.tasks is stores.main else [stores.main, stores.tasks]
    return Engines(main, tasks, unattended, audit, [*kept, forgetful], copies)


async def _open_copies(stack: AsyncExitStack, parts: ServerParts) -> InteractionCopies | None:
    """Left after the engine, whose last runs it hands over, and before the store."""
    stores = parts.stores
    if stores.interactions is None:
        return None
    agent = next(iter(parts.agents), "")
    return await stack.enter_async_context(_copies(stores.interactions, stores.main, agent=agent))


def _own_interactions(settings: Settings) -> UserInteractions | None:
    if settings.interaction_store_module is None:
        return None
    from sk_agents.persistence.interactions.user_interactions import (  # noqa: PLC0415  # and all stores of files
        own_interactions,
    )

    return own_interactions(settings)


def _copies(own: UserInteractions, store: Store, *, agent: str = "") -> InteractionCopies:
    from sk_agents.persistence.interactions.copies import (  # noqa: PLC0415  # as above
        InteractionCopies,
    )

    return InteractionCopies(own, store, SystemClock(), agent=agent)


async def _open_audit(
    stack: AsyncExitStack, parts: ServerParts, tables: Mapping[str, Table]
) -> ServerLog:
    store = parts.stores.main
    log = await stack.enter_async_context(ServerLog(store, RandomIds()))
    key_ids = dict.fromkeys(parts.stores.key_ids, "in use")
    watched = {**tables, "encryption_key": lambda: key_ids}
    await stack.enter_async_context(TableWatch(log, watched))
    plan = parts.checkpoints
    if plan is not None and isinstance(store, PortableStore):
        from sk_agents.audit.checkpointing import (  # noqa: PLC0415  # cryptography
            Checkpointer,
            RegularCheckpoints,
        )

        checkpointer = Checkpointer(store, log, plan.signer, SystemClock(), plan.path)
        regular = RegularCheckpoints(checkpointer, store, plan.seconds)
        await stack.enter_async_context(regular)
    return log


async def _open_engine(
    stack: AsyncExitStack,
    parts: ServerParts,
    audit: ServerLog,
    store: Store,
    agents: Mapping[str, Agent],
    *,
    copies: InteractionCopies | None = None,
    shared: bool = False,
) -> Engine:
    """`shared` is a store that other instances may use too."""
    url = parts.stores.signals_url if shared else None
    password_command = parts.stores.password_command
    exchange = await stack.enter_async_context(
        open_exchange(url, password_command=password_command)
    )
    engine = Engine(
        store,
        agents,
        signals=exchange.signals,
        peers=exchange.peers,
        clock=SystemClock(),
        ids=RandomIds(),
        owner=new_owner(),
        disconnect_grace=parts.disconnect_grace,
        conversation_bytes=parts.conversation_bytes,
        observer=parts.telemetry.observer if parts.telemetry is not None else RunLogs(),
        budget=parts.spending.budget,
        retention=parts.retention if shared else None,
        audit=audit,
        copies=copies,
    )
    return await stack.enter_async_context(engine)
