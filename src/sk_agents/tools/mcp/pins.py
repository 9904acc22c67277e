"""Which definitions of a server's tools are agreed to.

What a server offers first is taken as agreed to: its operator has just named it. From then on a
definition that differs is withheld until the operator says otherwise. The agreement lies in one
JSON file beside the store, so it outlives the process; several processes of a host share it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.config.store_url import path_of
from sk_agents.exceptions import ConfigurationError, NotFound
from sk_agents.private_files import make_private_file, make_private_folder, open_private

FILE_NAME = "mcp_pins.json"

Why = Literal["changed", "added"]


@dataclass(frozen=True, slots=True)
class Withheld:
    """A tool whose definition, as it was `seen`, the operator has not agreed to yet."""

    server: str
    tool: str
    why: Why
    seen: str


class _Pin(BaseModel):
    """`agreed` is `None` for a tool that came after its server was agreed to."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    agreed: str | None
    seen: str | None = None


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)

    v: Literal[1] = 1
    servers: dict[str, dict[str, _Pin]] = {}


def pins_path(store_url: str) -> Path | None:
    """Where pins lie beside a store: in the folder of its file. `None` for one without a folder."""
    scheme, _, rest = store_url.partition(":")
    path = path_of(rest)
    match scheme.lower():
        case "sqlite":
            return path.with_name(f"{path.name}.{FILE_NAME}")
        case "file":
            return path / FILE_NAME
        case _:
            return None


class Pins:
    """Without a path they live as long as this object. All methods block for a moment on a file."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._kept = _Document()
        self._lock = threading.Lock()

    def stamp(self) -> tuple[int, int] | None:
        """Changes when the pins change."""
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size

    def check(self) -> None:
        """Raises ConfigurationError: the file cannot be read, and no doubt may open a gate."""
        with self._lock:
            self._read()

    def judge(
        self, server: str, definitions: Mapping[str, str], *, takes_new: bool
    ) -> dict[str, Why]:
        """Which of these tools must be withheld, by their digests.

        With `takes_new` a tool that was not there before is agreed to at first sight.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        with self._changing() as document:
            is_first = server not in document.servers
            pins = document.servers.setdefault(server, {})
            withheld: dict[str, Why] = {}
            for tool, seen in definitions.items():
                pin = pins.get(tool)
                if pin is None and (is_first or takes_new):
                    pins[tool] = _Pin(agreed=seen)
                elif pin is None or pin.agreed != seen:
                    agreed = pin.agreed if pin is not None else None
                    withheld[tool] = "changed" if agreed is not None else "added"
                    pins[tool] = _Pin(agreed=agreed, seen=seen)
                elif pin.seen is not None:
                    pins[tool] = _Pin(agreed=seen)
            return withheld

    def withheld(self) -> list[Withheld]:
        """Everything that waits for the operator."""
        with self._lock:
            document = self._read()
        return [
            Withheld(server, tool, "changed" if pin.agreed else "added", pin.seen)
            for server, pins in document.servers.items()
            for tool, pin in pins.items()
            if pin.seen is not None
        ]

    def repin(self, server: str, tool: str | None = None) -> list[Withheld]:
        """Agree to what was seen of one tool, or of all tools of the server; what was agreed to.

        Raises:
            NotFound: nothing of this server and tool waits to be agreed to.
        """
        with self._changing() as document:
            agreed = []
            for name, pins in document.servers.items():
                if server not in (name, name.rpartition("@")[0]):
                    continue
                for one, pin in pins.items():
                    if pin.seen is not None and tool in (None, one):
                        why: Why = "changed" if pin.agreed else "added"
                        agreed.append(Withheld(name, one, why, pin.seen))
                        pins[one] = _Pin(agreed=pin.seen)
            if not agreed:
                raise NotFound("No definition of this server and tool waits to be agreed to.")
            return agreed

    @contextmanager
    def _changing(self) -> Iterator[_Document]:
        with self._lock, self._locked():
            document = self._read()
            before = document.model_dump_json()
            yield document
            after = document.model_dump_json()
            if after != before:
                self._write(document, after)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other process of this host changes the file at the same time."""
        if self.path is None:
            yield
            return
        make_private_folder(self.path.parent)
        lock_file = self.path.with_suffix(".lock")
        make_private_file(lock_file)
        with lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> _Document:
        if self.path is None:
            return self._kept
        try:
            return _Document.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return _Document()
        except (OSError, ValidationError):
            raise ConfigurationError(
                f"{self.path}: the agreed definitions of MCP tools cannot be read"
            ) from None

    def _write(self, document: _Document, text: str) -> None:
        if self.path is None:
            self._kept = document
            return
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        with open(temporary, "w", opener=open_private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def pin_name(name: str, identity: str) -> str:
    """How a server is called among the pins: another program of the same name is another one."""
    return f"{name}@{identity[:12]}"
