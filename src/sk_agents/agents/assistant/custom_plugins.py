"""What a model cannot know by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolError, kernel_function, tool


class Clock(BasePlugin):
    @tool(effect="read_only")
    @kernel_function(description="The date and the time now.")
    def now(self, timezone: Annotated[str, "An IANA name such as Europe/Paris"] = "UTC") -> str:
        try:
            zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ToolError(f"There is no time zone {timezone[:100]!r} here; UTC works.") from None
        return datetime.now(zone).strftime("%A, %Y-%m-%d %H:%M:%S %Z")
