"""Tools and policies for the tests of this room."""

from pathlib import Path
from typing import Any

from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.turns import ToolSpec
from sk_agents.hitl.policy import ApprovalPolicy, NeedsApproval
from sk_agents.hitl.rules import read_approvals

FILE = Path("config.yaml")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "amount": {"type": "integer"},
        "force": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "to": {"$ref": "#/$defs/Address"},
        "copies": {"type": "array", "items": {"$ref": "#/$defs/Address"}},
    },
    "additionalProperties": False,
    "$defs": {
        "Address": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "next": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
            },
        }
    },
}
ARGUMENTS: dict[str, Any] = {
    "path": "/tmp/a",
    "amount": 5,
    "force": None,
    "labels": {"a/b": "x"},
    "to": {"city": "Oslo", "next": None},
    "copies": [{"city": "Rome", "next": None}],
}


def spec(name: str = "Files-write", effect: Effect = Effect.AT_MOST_ONCE) -> ToolSpec:
    return ToolSpec(name, "", PARAMETERS, effect)


READ = spec("Files-read", Effect.READ_ONLY)
WRITE = spec()


def call(tool: ToolSpec = WRITE, arguments: dict[str, Any] | None = None) -> ToolCall:
    plugin, _, function = tool.name.partition("-")
    given = ARGUMENTS if arguments is None else arguments
    return ToolCall(id="c1", plugin_name=plugin, function_name=function, arguments=given)


def policy(
    block: Any = None,
    *,
    catalog: dict[str, bool | None] | NeedsApproval | None = None,
    declared: dict[str, bool | None] | None = None,
    attended: bool = True,
) -> ApprovalPolicy:
    return ApprovalPolicy(
        read_approvals(block, path=FILE),
        catalog=catalog if callable(catalog) else (catalog or {}).get,
        declared=(declared or {}).get,
        attended=attended,
    )


def ruled(when: dict[str, Any], then: str = "allow", **more: Any) -> ApprovalPolicy:
    return policy({"rules": [{"tool": "Files-*", "when": when, "then": then}], **more})
