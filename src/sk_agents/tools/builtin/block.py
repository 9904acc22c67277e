"""The `builtin` block of an agent: which tools it has, where they work, how far they may go.

An unknown key, tool or value stops start-up: a typo must not open a gate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.builtin.workspace import SharedBy

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


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class CodeBlock(_Strict):
    """Limits of one program; see `sandbox.plans.Limits`."""

    seconds: Seconds = 30.0
    cpu_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    memory_mb: Annotated[int, Field(ge=64, le=1 << 20)] = 1024
    file_mb: Annotated[int, Field(ge=1, le=1 << 20)] = 64
    output_kb: Annotated[int, Field(ge=1, le=8192)] = 1024
    processes: Annotated[int, Field(ge=1, le=4096)] = 64


class FilesBlock(_Strict):
    file_kb: Annotated[int, Field(ge=1, le=1 << 16)] = 4096
    result_kb: Annotated[int, Field(ge=1, le=8192)] = 128
    entries: Annotated[int, Field(ge=1, le=100_000)] = 1000
    matches: Annotated[int, Field(ge=1, le=100_000)] = 200


class HttpBlock(_Strict):
    allow: Annotated[tuple[Host, ...], Field(min_length=1)]
    private: tuple[PrivateHost, ...] = ()
    seconds: Seconds = 20.0
    max_kb: Annotated[int, Field(ge=1, le=8192)] = 256


class BuiltinBlock(_Strict):
    """`workspace` is relative to the agent file; `workspace_for` says who shares one folder."""

    tools: tuple[ToolName, ...]
    workspace: Annotated[str, Field(min_length=1)] | None = None
    workspace_for: SharedBy = "user"
    files: FilesBlock = FilesBlock()
    code: CodeBlock = CodeBlock()
    http: HttpBlock | None = None


def read_builtin(block: Any, *, path: Path, field: str) -> BuiltinBlock:
    """The block as it stands in the file.

    Raises:
        ConfigurationError: names the file, the field and what is wrong with it.
    """
    try:
        read = BuiltinBlock.model_validate(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        )
        raise _fault(path, f"{field}{place}", first["msg"]) from None
    if len(set(read.tools)) < len(read.tools):
        raise _fault(path, f"{field}.tools", "names a tool twice")
    if read.workspace is None and (FILE_TOOLS | CODE_TOOLS) & set(read.tools):
        raise _fault(path, f"{field}.workspace", "is missing: files and code need a folder")
    if read.http is None and "http_get" in read.tools:
        raise _fault(path, f"{field}.http", "is missing: http_get needs a list of allowed hosts")
    return read


def _fault(path: Path, field: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {field}: {reason}", path=str(path), field=field)
