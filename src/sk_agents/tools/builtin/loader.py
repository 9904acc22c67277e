"""The `builtin` block of an agent, and the tools that it switches on.

An unknown key, tool or value stops start-up: a typo must not open a gate.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, ValidationError

from sk_agents.exceptions import ConfigurationError
from sk_agents.outbound.network import Network
from sk_agents.tools.builtin.basic_tools import ClockTools, MathTools, UserTools
from sk_agents.tools.builtin.code import CodeTools
from sk_agents.tools.builtin.files import FileLimits, FileTools
from sk_agents.tools.builtin.function_tool import BuiltinFunction, FunctionTool
from sk_agents.tools.builtin.workspace import SharedBy, Workspaces
from sk_agents.tools.operator_config import StrictModel, problems_of
from sk_agents.tools.sandbox.plans import ProgramLimits
from sk_agents.tools.sandbox.sandbox import Sandbox
from sk_agents.worker_threads import WorkerThreads

ToolName = Literal[
    "read_file",
    "list_files",
    "search_files",
    "write_file",
    "edit_file",
    "delete_file",
    "run_python",
    "run_shell",
    "calculate",
    "current_time",
    "http_get",
    "ask_user",
]
TOOL_NAMES: tuple[ToolName, ...] = get_args(ToolName)
FILE_TOOLS = frozenset(TOOL_NAMES[:6])
CODE_TOOLS = frozenset({"run_python", "run_shell"})

_HOST = (
    r"(?:https?://)?(?:\*|(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)(?::[0-9]{1,5})?"
)
Host = Annotated[str, StringConstraints(pattern=rf"^{_HOST}$")]
PrivateHost = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_.:-]+$")]
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class CodeBlock(StrictModel):
    """Limits of one program; see `sandbox.plans.ProgramLimits`."""

    seconds: Seconds = 30.0
    cpu_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    memory_mb: Annotated[int, Field(ge=64, le=1 << 20)] = 1024
    file_mb: Annotated[int, Field(ge=1, le=1 << 20)] = 64
    output_kb: Annotated[int, Field(ge=1, le=8192)] = 1024
    processes: Annotated[int, Field(ge=1, le=4096)] = 64


class WebLimits(StrictModel):
    """`allow` are hosts: `example.org`, `*.example.org`, `*`, with a port if it is not the usual
    one, after `http://` if it may be asked without encryption. `private` are hosts among them
    whose addresses need not be public."""

    allow: Annotated[tuple[Host, ...], Field(min_length=1)]
    private: tuple[PrivateHost, ...] = ()
    seconds: Seconds = 20.0
    max_kb: Annotated[int, Field(ge=1, le=8192)] = 256


class BuiltinBlock(StrictModel):
    """`workspace` is relative to the agent file; `workspace_for` says who shares one folder."""

    tools: tuple[ToolName, ...]
    workspace: Annotated[str, Field(min_length=1)] | None = None
    workspace_for: SharedBy = "user"
    files: FileLimits = FileLimits()
    code: CodeBlock = CodeBlock()
    http: WebLimits | None = None


def read_builtin(block: Any, *, path: Path, field: str) -> BuiltinBlock:
    """The block as it stands in the file.

    Raises:
        ConfigurationError: names the file, the field and what is wrong with it.
    """
    try:
        read = BuiltinBlock.model_validate(block)
    except ValidationError as error:
        place, reason = next(problems_of(error))
        raise _fault(path, f"{field}{place}", reason) from None
    if len(set(read.tools)) < len(read.tools):
        raise _fault(path, f"{field}.tools", "names a tool twice")
    if read.workspace is None and (FILE_TOOLS | CODE_TOOLS) & set(read.tools):
        raise _fault(path, f"{field}.workspace", "is missing: files and code need a folder")
    if read.http is None and "http_get" in read.tools:
        raise _fault(path, f"{field}.http", "is missing: http_get needs a list of allowed hosts")
    return read


def _fault(path: Path, field: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {field}: {reason}", path=str(path), field=field)


class BuiltinTools:
    """What all agents of one process share: threads, and places in the sandbox.

    `keep_out` are files of the server's own, such as its store: a workspace must not hold them.
    """

    def __init__(
        self,
        threads: WorkerThreads,
        *,
        keep_out: Sequence[Path] = (),
        network: Network | None = None,
    ) -> None:
        self._threads = threads
        self._network = network or Network()
        self._keep_out = tuple(file.resolve() for file in keep_out)
        self._sandbox = Sandbox()

    def load(self, block: Any, *, path: Path, field: str = "builtin") -> list[FunctionTool]:
        """The tools that an agent's block names, in our order; none for an absent block.

        Raises:
            ConfigurationError: the block cannot be used: file and field; or it wants code to be
                run where no sandbox holds.
        """
        if block is None:
            return []
        read = read_builtin(block, path=path, field=field)
        if CODE_TOOLS & set(read.tools):
            try:
                self._sandbox.check()
            except ConfigurationError as error:
                raise ConfigurationError(f"{path}: {field}.tools: {error}") from None
        workspaces = self.workspaces(block, path=path, field=field)
        return [
            FunctionTool(function, self._threads)
            for function in self._functions(read, workspaces)
            if function.function.__name__ in read.tools
        ]

    def _functions(
        self, block: BuiltinBlock, workspaces: Workspaces | None
    ) -> Iterator[BuiltinFunction]:
        if workspaces is not None:
            yield from FileTools(workspaces, block.files).functions()
            limits = ProgramLimits(**block.code.model_dump())
            yield from CodeTools(workspaces, limits, self._sandbox, self._threads).functions()
        yield from MathTools().functions()
        yield from ClockTools().functions()
        if block.http is not None and "http_get" in block.tools:
            # aiohttp takes a fifth of a second to import, which agents without http_get save.
            from sk_agents.tools.builtin.web import WebTools  # noqa: PLC0415

            yield from WebTools(block.http, network=self._network).functions()
        yield from UserTools().functions()

    def workspaces(self, block: Any, *, path: Path, field: str = "builtin") -> Workspaces | None:
        """The folders that the block names; `None` if it names none.

        Raises:
            ConfigurationError: as `load`.
        """
        read = read_builtin(block, path=path, field=field)
        if read.workspace is None:
            return None
        field = f"{field}.workspace"
        folder = path.parent / Path(read.workspace).expanduser()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError("it may not be written")
        except OSError as error:
            raise ConfigurationError(f"{path}: {field}: {folder}: {error}") from None
        resolved = folder.resolve()
        for kept in (path.resolve(), *self._keep_out):
            if kept.is_relative_to(resolved):
                raise ConfigurationError(
                    f"{path}: {field}: {folder} holds {kept.name}, which tools must not reach"
                )
        return Workspaces(resolved, read.workspace_for)
