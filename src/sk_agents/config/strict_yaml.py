"""YAML read strictly: plain data only, no key twice, bounded in size, depth and aliases.

A loader that follows aliases turns some hundred bytes into millions of nodes, and the usual one
silently keeps the last of two equal keys; neither is acceptable in a file that says which
tool calls need approval.

Scalars are YAML 1.2's (its core schema), so a date is text. What YAML 1.1 reads as something else,
`012` as 10, `1:30` as 90, `no` as false, is refused with its line: the author knows which of them
was meant. A document of another author (`strict=False`) is read by YAML 1.2 alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from sk_agents.exceptions import ConfigurationError

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 50_000

_TAG = "tag:yaml.org,2002:"
# By YAML 1.2's core schema, with the first characters that each can have. Merging is of 1.1 and
# kept: it takes nothing for something else.
_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)
# What the two versions read differently.
_AMBIGUOUS = re.compile(
    r"(?:yes|no|on|off)|[-+]?0[0-9_]+|0o[0-7]+|[-+]?0b[01_]+"
    r"|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*"
    r"|[-+]?(?:[0-9]+_[0-9_.]*|[0-9]*\.[0-9_]*_[0-9_]*)(?:[eE][-+]?[0-9]+)?",
    re.IGNORECASE,
)


# The same rules in C where PyYAML was built with it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # one of the two
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _kind, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), _first)


def read_yaml(path: Path, *, strict: bool = True) -> Any:
    """The one document in the file.

    Raises:
        ConfigurationError: the file cannot be read or breaks a rule; names file and line.
    """
    text = _read_text(path)
    try:
        _check_depth(path, text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _Weight(path, strict=strict).of(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        # The error's own text quotes the file, which may hold secrets.
        mark = error.problem_mark or error.context_mark
        raise _refusal(path, mark, error.problem or "not valid YAML") from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: a scalar that looks like a date or a number, but is none.
        raise ConfigurationError(f"{path}: not valid YAML ({type(error).__name__})") from None


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8 text") from None
    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_BYTES} bytes")
    return text


def _refusal(path: Path, mark: yaml.Mark | None, reason: str) -> ConfigurationError:
    line = f", line {mark.line + 1}" if mark else ""
    return ConfigurationError(f"{path}{line}: {reason}")


def _check_depth(path: Path, text: str) -> None:
    """Look at the flat stream of events first: building nested nodes recurses."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _refusal(path, event.start_mark, f"nested more than {MAX_DEPTH} deep")


class _Weight:
    """Counts nodes as if every alias were written out, visiting each real node once."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        self.path = path
        self.strict = strict
        self.known: dict[yaml.Node, int | None] = {}

    def of(self, node: yaml.Node) -> int:
        if node in self.known:
            known = self.known[node]
            if known is None:
                raise _refusal(self.path, node.start_mark, "an alias contains itself")
            return known
        self.known[node] = None
        weight = 1 + sum(self.of(child) for child in self._children(node))
        if weight > MAX_NODES:
            raise _refusal(self.path, node.start_mark, f"more than {MAX_NODES} nodes")
        self.known[node] = weight
        return weight

    def _children(self, node: yaml.Node) -> list[yaml.Node]:
        if self.strict and isinstance(node, yaml.ScalarNode):
            self._refuse_ambiguous(node)
        if isinstance(node, yaml.MappingNode):
            self._refuse_repeated_keys(node)
            return [child for pair in node.value for child in pair]
        return list(node.value) if isinstance(node, yaml.SequenceNode) else []

    def _refuse_ambiguous(self, node: yaml.ScalarNode) -> None:
        # One that is quoted has a style.
        if not node.style and _AMBIGUOUS.fullmatch(node.value):
            reason = f"'{node.value}' means different things to different readers of YAML: quote it"
            raise _refusal(
                self.path, node.start_mark, f"{reason}, or write true, false or a number"
            )

    def _refuse_repeated_keys(self, node: yaml.MappingNode) -> None:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refusal(self.path, key.start_mark, "a key must be plain text")
            if (key.tag, key.value) in seen:
                raise _refusal(self.path, key.start_mark, f"key '{key.value}' appears twice")
            seen.add((key.tag, key.value))
