"""The only file that knows which back rooms are in use.

Resources are opened into the caller's exit stack, so that whatever was opened is closed in
reverse order, also when a later one cannot be opened.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.settings import Settings
from sk_agents.config.store_url import own_class_url, store_url
from sk_agents.engine.ports import Store
from sk_agents.persistence.persistence_factory import PersistenceFactory
from sk_agents.persistence.store_factory import open_store
from sk_agents.persistence.task_bridge import TaskBridgeStore


@dataclass(frozen=True, slots=True)
class Stores:
    """`tasks` keeps Teal's tasks: the operator's own class if one is named, else `main`."""

    main: Store
    tasks: Store


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


async def open_stores(stack: AsyncExitStack, stores: Stores) -> None:
    """Open them into the caller's stack.

    Raises:
        StoreError: a store cannot be opened.
        ConfigurationError: the operator's own class loses what it is given.
    """
    await stack.enter_async_context(stores.main)
    if stores.tasks is not stores.main:
        await stack.enter_async_context(stores.tasks)
