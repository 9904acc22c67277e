"""A client of a Teal server's chats: asynchronous, typed, and resuming its streams by itself.

It knows the server only by its wire: none of the server's own modules is imported.
"""

from sk_agents.client.answering import Answering
from sk_agents.client.chat import Chat
from sk_agents.client.errors import (
    ClientError,
    CursorLost,
    ProtocolError,
    ServerUnreachable,
    TealServerError,
)
from sk_agents.client.events import (
    Answer,
    AnswerDelta,
    ApprovalRequired,
    Approved,
    BranchChanged,
    Cancelled,
    ChatChanged,
    Complete,
    Cost,
    Event,
    Failed,
    Queued,
    Rejected,
    Started,
    Status,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolOutput,
    ToolResult,
    Unknown,
    Usage,
)
from sk_agents.client.records import (
    AgentInfo,
    Branch,
    Branches,
    ChatSummary,
    Decided,
    Grant,
    History,
    Interaction,
    PendingApproval,
)
from sk_agents.client.reply import Reply, ToolUse
from sk_agents.client.sync import SyncChat, SyncTeal
from sk_agents.client.teal_client import TealClient

__all__ = [
    "AgentInfo",
    "Answer",
    "AnswerDelta",
    "Answering",
    "ApprovalRequired",
    "Approved",
    "Branch",
    "BranchChanged",
    "Branches",
    "Cancelled",
    "Chat",
    "ChatChanged",
    "ChatSummary",
    "ClientError",
    "Complete",
    "Cost",
    "CursorLost",
    "Decided",
    "Event",
    "Failed",
    "Grant",
    "History",
    "Interaction",
    "PendingApproval",
    "ProtocolError",
    "Queued",
    "Rejected",
    "Reply",
    "ServerUnreachable",
    "Started",
    "Status",
    "SyncChat",
    "SyncTeal",
    "TealClient",
    "TealServerError",
    "Thinking",
    "ThinkingDelta",
    "ToolCall",
    "ToolOutput",
    "ToolResult",
    "ToolUse",
    "Unknown",
    "Usage",
]
