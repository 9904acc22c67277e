"""A client of a Teal server's chats: asynchronous, typed, and resuming its streams by itself.

It knows the server only by its wire: none of the server's own modules is imported. What the wire
calls by a longer name has a short one here.
"""

from sk_agents.client.errors import (
    ClientError,
    CursorLost,
    ProtocolError,
    ServerUnreachable,
    SignInFailed,
    TealServerError,
)
from sk_agents.client.files import file_item
from sk_agents.client.reply import AnswerText as Answering
from sk_agents.client.reply import Reply, ToolUse
from sk_agents.client.stored_sign_in import stored_sign_in
from sk_agents.client.sync import SyncChat, SyncTeal
from sk_agents.client.teal_client import AgentInfo, Chat, History, TealClient
from sk_agents.client.teal_client import ReadInteraction as Interaction
from sk_agents.wire.events import (
    AnswerDelta,
    ApprovalRequired,
    Approved,
    ChatChanged,
    Event,
    FeedbackGiven,
    Rejected,
    ThinkingDelta,
    ToolOutput,
    Unknown,
)
from sk_agents.wire.events import AnswerEvent as Answer
from sk_agents.wire.events import BranchSwitched as BranchChanged
from sk_agents.wire.events import CostView as Cost
from sk_agents.wire.events import InteractionCancelled as Cancelled
from sk_agents.wire.events import InteractionComplete as Complete
from sk_agents.wire.events import InteractionError as Failed
from sk_agents.wire.events import InteractionQueued as Queued
from sk_agents.wire.events import InteractionStarted as Started
from sk_agents.wire.events import InteractionStatus as Status
from sk_agents.wire.events import InteractionStopping as Stopping
from sk_agents.wire.events import ReviewExtension as ReviewExtended
from sk_agents.wire.events import SteeredEvent as Steered
from sk_agents.wire.events import SteeringDelivery as SteeringDelivered
from sk_agents.wire.events import ThinkingEvent as Thinking
from sk_agents.wire.events import ToolCallEvent as ToolCall
from sk_agents.wire.events import ToolResultEvent as ToolResult
from sk_agents.wire.events import UsageView as Usage
from sk_agents.wire.events import VoteEvent as VoteCast
from sk_agents.wire.events import VoteWithdrawal as VoteWithdrawn
from sk_agents.wire.views import ApprovalView as PendingApproval
from sk_agents.wire.views import BranchList as Branches
from sk_agents.wire.views import BranchView as Branch
from sk_agents.wire.views import (
    ChatSummary,
)
from sk_agents.wire.views import GrantView as Grant
from sk_agents.wire.views import MeView as Me
from sk_agents.wire.views import Processed as Decided

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
    "FeedbackGiven",
    "Grant",
    "History",
    "Interaction",
    "Me",
    "PendingApproval",
    "ProtocolError",
    "Queued",
    "Rejected",
    "Reply",
    "ReviewExtended",
    "ServerUnreachable",
    "SignInFailed",
    "Started",
    "Status",
    "Steered",
    "SteeringDelivered",
    "Stopping",
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
    "VoteCast",
    "VoteWithdrawn",
    "event_name",
    "file_item",
    "stored_sign_in",
]

_NAMES = {globals()[name]: name for name in __all__ if name[0].isupper()}


def event_name(event: Event) -> str:
    """The name of the event's class here, as `teal chat --events` prints it."""
    return _NAMES[type(event)]
