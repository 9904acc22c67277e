"""A sign-in that is kept on this computer: one private file for each server.

A refresh token can be used once, so the processes that share a file renew it one after the other:
the others then find the new one. It is stored before it is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sk_agents.client.connection import Token
from sk_agents.client.errors import ServerUnreachable, SignInFailed
from sk_agents.client.issuer_requests import IssuerRefused, access_token, ask_issuer, expiry
from sk_agents.exceptions import ConfigurationError
from sk_agents.private_files import (
    data_folder,
    make_private_folder,
    open_private,
    replace_private,
)

try:
    import fcntl
except ImportError:  # Windows has none: two processes may then have to sign in again.
    fcntl = None  # type: ignore[assignment]

KEY_VARIABLE = "TEAL_KEY"
FORMAT = 1
# A token that ends sooner is renewed before it is sent.
EARLY_SECONDS = 30.0
LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.05


class StoredSignIn(BaseModel):
    """What is stored. An access key has neither an end nor an issuer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = Field(FORMAT, le=FORMAT)
    server: str
    access_token: str = Field(repr=False)
    expires_at: float | None = None
    refresh_token: str | None = Field(None, repr=False)
    client_id: str = ""
    parameters: dict[str, str] = {}
    token_endpoint: str | None = None
    revocation_endpoint: str | None = None

    def is_good(self, *, early: float = 0.0) -> bool:
        return self.expires_at is None or time.time() + early < self.expires_at


def stored_sign_in(base_url: str) -> Token:
    """The access key in `TEAL_KEY`, else what `teal login` has stored for this server.

    It is renewed when it is needed. Give it to a client as its `token`.
    """
    if key := os.environ.get(KEY_VARIABLE):
        return key
    try:
        return SignInFile(base_url)
    except ConfigurationError:
        # Without a home folder nothing can have been stored.
        return None


class SignInFile:
    """The sign-in at one server, as the source of a client's tokens.

    Raises:
        ConfigurationError: the user has no home folder.
    """

    def __init__(self, base_url: str) -> None:
        self.server = _normal(base_url)
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", self.server.partition("://")[2])[:80]
        digest = hashlib.sha256(self.server.encode()).hexdigest()[:12]
        folder = data_folder(os.environ) / "teal-agents" / "sign-ins"
        self.path = folder / f"{name}-{digest}.json"

    def read(self) -> StoredSignIn | None:
        """Raises SignInFailed: the file cannot be used."""
        try:
            found = StoredSignIn.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SignInFailed(f"{self.path}: {error.strerror or error}") from error
        except ValidationError:
            raise SignInFailed(f"{self.path} is damaged: sign in again") from None
        return found if found.server == self.server else None

    def write(self, sign_in: StoredSignIn) -> None:
        """Raises SignInFailed: it cannot be written."""
        try:
            make_private_folder(self.path.parent)
            replace_private(self.path, sign_in.model_dump_json(indent=2).encode() + b"\n")
        except OSError as error:
            raise SignInFailed(f"{self.path}: {error.strerror or error}") from error

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    async def current(self) -> str | None:
        known = self.read()
        if known is None or known.is_good(early=EARLY_SECONDS):
            return None if known is None else known.access_token
        try:
            return await self._renew(known.access_token)
        except ServerUnreachable:
            if known.is_good():
                return known.access_token
            raise

    async def renewed(self, refused: str) -> str | None:
        known = self.read()
        if known is None or known.refresh_token is None:
            return None
        return await self._renew(refused)

    async def _renew(self, old: str) -> str:
        """Raises SignInFailed, ServerUnreachable."""
        async with self.locked():
            known = self.read()
            if known is not None and known.access_token != old and known.is_good():
                return known.access_token
            if known is None or known.refresh_token is None or known.token_endpoint is None:
                raise SignInFailed(f"Your sign-in has ended: teal login {self.server}")
            form = {
                **known.parameters,
                "grant_type": "refresh_token",
                "client_id": known.client_id,
                "refresh_token": known.refresh_token,
            }
            try:
                answer = await ask_issuer(known.token_endpoint, form)
            except IssuerRefused as error:
                if error.code == "invalid_grant":
                    self.remove()
                raise SignInFailed(
                    f"Your sign-in has ended ({error.code}): teal login {self.server}"
                ) from error
            fresh = {
                "access_token": access_token(answer),
                "expires_at": expiry(answer),
                "refresh_token": answer.get("refresh_token") or known.refresh_token,
            }
            self.write(known.model_copy(update=fresh))
            return str(fresh["access_token"])

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None, None]:
        """While no other process and no other task renews or replaces it.

        Raises:
            ServerUnreachable: another one takes too long.
        """
        make_private_folder(self.path.parent)
        lock = self.path.with_name(f".{self.path.name}.lock")
        fd = open_private(str(lock), os.O_RDWR | os.O_CREAT)
        try:
            until = time.monotonic() + LOCK_SECONDS
            while not _try_lock(fd):
                if time.monotonic() > until:
                    raise ServerUnreachable("Another process has been signing in for too long.")
                await asyncio.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _normal(base_url: str) -> str:
    """One name for each server, however its address is written."""
    parts = urlsplit(base_url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"
