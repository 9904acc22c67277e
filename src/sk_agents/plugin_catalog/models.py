"""What a catalog class says about plugins and tools.

A tool whose `requires_hitl` is left open is one that nothing is said about, which is not `False`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class CodePluginType(BaseModel):
    type_name: Literal["code"] = "code"


class McpPluginType(BaseModel):
    type_name: Literal["mcp"] = "mcp"


PluginType = CodePluginType | McpPluginType


class Governance(BaseModel):
    requires_hitl: bool | None = None
    cost: Literal["low", "medium", "high"] | None = None
    data_sensitivity: Literal["public", "proprietary", "confidential", "sensitive"] | None = None


class Oauth2PluginAuth(BaseModel):
    auth_type: Literal["oauth2"] = "oauth2"
    auth_server: str
    scopes: list[str]


PluginAuth = Oauth2PluginAuth


class PluginTool(BaseModel):
    """`tool_id` is `<plugin>-<function>`."""

    tool_id: str
    name: str
    description: str = ""
    governance: Governance
    auth: PluginAuth | None = None


class Plugin(BaseModel):
    plugin_id: str
    name: str
    description: str = ""
    version: str = ""
    owner: str = ""
    plugin_type: PluginType = Field(discriminator="type_name")
    tools: list[PluginTool]


class PluginCatalogDefinition(BaseModel):
    plugins: list[Plugin]
