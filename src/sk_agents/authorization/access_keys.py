"""A file of access keys: what each is called, until when it serves, and the hash of its secret.

A key has 256 random bits, so a plain hash is as good as a slow one. The file is replaced as a
whole, under a lock beside it; a server that reads it sees the old keys or the new ones.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sk_agents.exceptions import ConfigurationError
from sk_agents.private_files import (
    changeable_by_others,
    data_folder,
    file_stamp,
    make_private_folder,
    open_private,
    replace_private,
)

PREFIX = "teal"
FORMAT = 1
_KEY = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")
# Compared with where there is no such key, so that both cases take the same time.
_NO_HASH = "0" * 64


class AccessKey(BaseModel):
    """One key; `name` is the user's id. It has the roles and groups of the key that is sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_id: str = Field(pattern=r"^[0-9a-f]{12}$")
    name: str = Field(min_length=1, max_length=256)
    secret_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    made_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    roles: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = ()
    groups: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = ()

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def _each_once(keys: list[AccessKey]) -> list[AccessKey]:
    """A copied entry with another name would make one user of another."""
    if len({key.key_id for key in keys}) < len(keys):
        raise ValueError("two keys have one id")
    return keys


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: int = Field(FORMAT, le=FORMAT)
    keys: Annotated[list[AccessKey], AfterValidator(_each_once)] = []


def default_keys_file(environ: Mapping[str, str]) -> Path:
    return data_folder(environ) / "teal-agents" / "keys.json"


class KeysFile:
    """The keys as the file has them now: it is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, ...] | None = None
        self._keys: dict[str, AccessKey] = {}

    def keys(self) -> list[AccessKey]:
        """All of them, oldest first.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        self._refresh()
        return list(self._keys.values())

    def find(self, text: str, now: datetime) -> AccessKey | None:
        """The key that `text` is, unless it is over.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        self._refresh()
        found = _KEY.fullmatch(text)
        key = self._keys.get(found[1]) if found else None
        is_right = hmac.compare_digest(_hash(text), key.secret_hash if key else _NO_HASH)
        return key if key is not None and is_right and not key.is_over(now) else None

    def add(
        self,
        name: str,
        *,
        expires_at: datetime | None = None,
        roles: Sequence[str] = (),
        groups: Sequence[str] = (),
    ) -> tuple[AccessKey, str]:
        """A new key of this user, and its text, which is kept nowhere.

        Raises:
            ConfigurationError: the file cannot be read or written.
        """
        key_id = secrets.token_hex(6)
        text = f"{PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
        key = AccessKey(
            key_id=key_id,
            name=name,
            secret_hash=_hash(text),
            made_at=datetime.now(UTC),
            expires_at=expires_at,
            roles=tuple(dict.fromkeys(roles)),
            groups=tuple(dict.fromkeys(groups)),
        )
        with self._writing() as keys:
            keys.append(key)
        return key, text

    def revoke(self, which: str) -> list[AccessKey]:
        """Remove the key of this id, or all keys of this name; those that were removed."""
        with self._writing() as keys:
            gone = [key for key in keys if which in (key.key_id, key.name)]
            keys[:] = [key for key in keys if key not in gone]
        return gone

    @contextmanager
    def _writing(self) -> Iterator[list[AccessKey]]:
        try:
            make_private_folder(self.path.parent)
            lock = self.path.with_name(f".{self.path.name}.lock")
            with open(lock, "a", opener=open_private) as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                keys = self.keys()
                yield keys
                # Without what a key does not have: servers of earlier versions, which know no
                # groups, read the same file as long as no key has any.
                kept = [key.model_dump(mode="json", exclude_defaults=True) for key in keys]
                self._replace({"format": FORMAT, "keys": kept})
        except OSError as error:
            raise ConfigurationError(f"{self.path}: {error.strerror or error}") from error

    def _replace(self, document: dict[str, Any]) -> None:
        # Durably, or a key that was revoked could come back with a power loss.
        replace_private(self.path, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")

    def _refresh(self) -> None:
        try:
            stamp = file_stamp(self.path)
            if stamp == self._stamp:
                return
            self._refuse_shared()
            document = _Document.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            stamp, document = (), _Document()
        except OSError as error:
            raise ConfigurationError(f"{self.path}: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise ConfigurationError(
                f"{self.path}: not a file of keys at '{where}': {first['msg']}"
            ) from None
        self._keys = {key.key_id: key for key in document.keys}
        self._stamp = stamp

    def _refuse_shared(self) -> None:
        """Where others can write, they can add a key of their own with every role."""
        if (part := changeable_by_others(self.path.resolve())) is not None:
            raise ConfigurationError(
                f"{self.path}: every user of this machine can change '{part}': chmod o-w it, and "
                "look through the keys"
            )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
