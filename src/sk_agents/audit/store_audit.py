"""What an operator does with the audit of a store that is open: export, verify, sign."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sk_agents.audit.checkpointing import Checkpointer
from sk_agents.audit.checkpoints import Signer, Verifier
from sk_agents.audit.reading import AuditQuery, trail
from sk_agents.audit.server_log import ServerLog
from sk_agents.audit.verification import Told, Verification, verify
from sk_agents.engine.defaults import RandomIds, SystemClock
from sk_agents.engine.events import Noted
from sk_agents.engine.ports import PortableStore, Store
from sk_agents.exceptions import ConfigurationError
from sk_agents.wire.views import AuditEntry, Checkpoint


class StoreAudit:
    def __init__(self, store: PortableStore, log: ServerLog) -> None:
        self._store = store
        self._log = log

    async def exported(self, query: AuditQuery, who: str) -> AsyncIterator[AuditEntry]:
        """The trail; that it was taken, and by whom, is noted first."""
        asked = {
            "since": query.since.isoformat() if query.since else None,
            "user": query.user_id,
            "agent": query.agent,
        }
        details = {name: value for name, value in asked.items() if value is not None}
        await self._log.note(Noted(what="audit_exporting", who=who, details=details))
        async for entry in trail(self._store, query):
            yield entry

    async def verified(
        self, kept: Sequence[Checkpoint], keys: Sequence[Verifier], told: Told
    ) -> Verification:
        return await verify(self._store, kept=kept, keys=keys, told=told)

    async def sign(self, signer: Signer, path: Path | None, *, everything: bool) -> Checkpoint:
        writer = Checkpointer(self._store, self._log, signer, SystemClock(), path)
        return await writer.write(everything=everything)


@asynccontextmanager
async def opened_audit(store: Store) -> AsyncIterator[StoreAudit]:
    """Open a store for its audit.

    Raises:
        ConfigurationError: it keeps nothing that could be read as a whole.
        StoreError: it cannot be opened.
    """
    if not isinstance(store, PortableStore):
        raise ConfigurationError(f"{store} keeps nothing that could be read here")
    async with store as opened, ServerLog(opened, RandomIds()) as log:
        yield StoreAudit(opened, log)
