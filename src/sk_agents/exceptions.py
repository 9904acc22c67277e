"""Every error this package raises, in one tree.

    TealError
    ├── ConfigurationError             stops start-up, exit code 78
    │   ├── LoadError                  a class named by configuration cannot be used
    │   │   └── ModuleMissing, ModuleBroken, ClassUnusable
    │   └── StoreEncrypted, StoreNotEncrypted, WrongEncryptionKey
    ├── Unauthenticated                who is calling is not known
    │   └── TokenExpired, NotOwner
    ├── AuthorizerUnavailable          who is calling cannot be found out now
    ├── Forbidden                      known, but not allowed
    │   └── InsufficientScope, MissingRole, NotApprover
    ├── NotFound
    │   └── ThreadNotFound, RunNotFound, ApprovalNotFound, GrantNotFound, VoteNotFound,
    │       AttachmentNotFound
    ├── InvalidInput                   understood, but not acceptable
    ├── MalformedRequest               not understood
    │   └── CursorAhead, InvalidCursor
    ├── CursorExpired                  the event to go on from is not in the log any more
    ├── UnsupportedMedia               a kind of body that is not read here
    ├── TooLarge                       more bytes than a request may have
    ├── SlowRequest                    its body did not arrive in time
    ├── StillRunning                   waited long enough; the run goes on
    ├── Conflict                       a condition did not hold; nothing was written
    │   ├── ThreadExists
    │   ├── ThreadBusy
    │   ├── ThreadInBin                nothing begins in it until it is moved back
    │   ├── NotDeletable               a copy of it would stay elsewhere
    │   ├── SequenceConflict
    │   ├── LeaseHeld
    │   ├── LeaseLost
    │   ├── ApprovalAlreadyDecided
    │   ├── ApprovalExpired
    │   ├── ApprovalMismatch
    │   ├── ApprovalWithdrawn
    │   ├── PauseRequired              it has paused more than once
    │   ├── AlreadyTerminal
    │   ├── NotSteerable               it has not begun, or was asked to stop
    │   └── CommitReused
    ├── ShuttingDown                   this instance takes no new work
    ├── LimitExceeded
    │   ├── BudgetExceeded             as much money or as many tokens as may be were spent
    │   ├── CounterFull                a sum that all instances keep would pass its bound
    │   └── StoreFull                  the store's own bound, or the disk's
    ├── StateCorrupt                   one thread's record is damaged; the others work
    ├── StoreError                     the store as a whole cannot serve
    │   ├── StoreUnavailable
    │   │   └── StoreBroken            what is kept cannot be known: the process must end
    │   ├── StoreBusy
    │   ├── StoreReadOnly
    │   ├── CommitOutcomeUnknown
    │   └── SchemaTooNew
    ├── ModelError                     no usable reply from the model
    │   ├── ModelRateLimited
    │   ├── ModelUnavailable
    │   ├── ModelInterrupted           broke off in the middle: worth one more try
    │   ├── ModelProtocolError         what came back makes no sense
    │   ├── ReplyTooLarge              more than a reply may hold; it was not read to its end
    │   ├── ModelRefused               the provider will not serve this request at all
    │   ├── ContextTooLong             the prompt does not fit the model's window
    │   ├── OutputInvalid              the answer is not of the type that the agent must give
    │   ├── GuardrailTripped           a check of the agent's author does not let it pass
    │   └── AgentCodeFailed            a function of the agent's author failed
    ├── UpstreamFailed                 a server that a user reads from is of no use now
    ├── ToolError                      a tool's own words for the model
    │   └── ToolInterrupted            it broke off, and what it did is unknown
    └── AgentsException                what classes of the public project's users raise; each is
        │                              also one of the above
        ├── PersistenceCreateError, PersistenceLoadError, PersistenceUpdateError,
        │   PersistenceDeleteError     a `StoreError`
        ├── InvalidConfigException, PluginCatalogDefinitionException,
        │   PluginFileReadException    a `ConfigurationError`
        ├── AuthenticationException    an `Unauthenticated`
        ├── InvalidInputException      an `InvalidInput`
        └── AgentInvokeException

The docstring of a class is its default message, its name in snake case its code unless it sets
another; attributes carry the ids. HTTP is not known here: `http/errors.py` holds the one table
from these classes to status codes.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar


class TealError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "internal"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str | None = None, **attributes: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.attributes = attributes

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["attributes"][name]
        except KeyError:
            raise AttributeError(name) from None


class ConfigurationError(TealError):
    """The configuration is not usable."""

    code = "configuration"


class LoadError(ConfigurationError):
    """A class named by configuration cannot be used."""


class ModuleMissing(LoadError):
    """The module does not exist."""


class ModuleBroken(LoadError):
    """The module exists, but importing it fails."""


class ClassUnusable(LoadError):
    """The module has no such class, or the class has the wrong base."""


class StoreEncrypted(ConfigurationError):
    """The store is encrypted, and there are no encryption keys (TA_ENCRYPTION_KEYS)."""


class StoreNotEncrypted(ConfigurationError):
    """There are encryption keys, but the store is in plain text; `teal encrypt` encrypts it."""


class WrongEncryptionKey(ConfigurationError):
    """The store was encrypted with a key that is not among the encryption keys."""


class Unauthenticated(TealError):
    """The request carries no valid credentials."""


class TokenExpired(Unauthenticated):
    """The token has expired."""


class NotOwner(Unauthenticated):
    """This belongs to another user."""

    code = "unauthenticated"


class AuthorizerUnavailable(TealError):
    """The authorizer did not answer in time."""


class Forbidden(TealError):
    """The caller may not do this."""


class InsufficientScope(Forbidden):
    """The token does not allow this."""


class MissingRole(Forbidden):
    """The caller has not the role for this."""


class NotApprover(Forbidden):
    """Others decide about this call."""


class NotFound(TealError):
    """There is no such thing."""


class ThreadNotFound(NotFound):
    """There is no such conversation."""


class RunNotFound(NotFound):
    """There is no such run."""


class ApprovalNotFound(NotFound):
    """There is no such approval."""


class GrantNotFound(NotFound):
    """There is no such standing approval."""


class AttachmentNotFound(NotFound):
    """There is no such attachment."""


class VoteNotFound(NotFound):
    """You have no vote on this approval."""


class InvalidInput(TealError):
    """The input is not acceptable."""


class MalformedRequest(TealError):
    """The request cannot be understood."""


class CursorAhead(MalformedRequest):
    """This conversation has not come as far as the given event id."""


class InvalidCursor(MalformedRequest):
    """The cursor is none that a listing gave as its `next`."""


class CursorExpired(TealError):
    """This conversation was restored or made again: read it again, and go on from there."""


class UnsupportedMedia(TealError):
    """The body must be JSON: application/json in UTF-8, not compressed."""


class TooLarge(TealError):
    """The request is larger than it may be."""


class SlowRequest(TealError):
    """The body of the request did not arrive in time."""


class StillRunning(TealError):
    """The answer takes longer than a request may wait; it goes on."""


class Conflict(TealError):
    """The state has moved on; nothing was written."""


class ThreadExists(Conflict):
    """The conversation exists already."""


class ThreadBusy(Conflict):
    """A run of this conversation is still active."""


class SequenceConflict(Conflict):
    """Something was appended since the state was read."""


class LeaseHeld(Conflict):
    """A live owner holds this conversation."""


class LeaseLost(Conflict):
    """The lease was taken over or given up; this owner may not write."""


class ApprovalAlreadyDecided(Conflict):
    """This approval has already been decided."""

    code = "approval_already_processed"


class ApprovalExpired(Conflict):
    """This approval has expired."""


class ApprovalMismatch(Conflict):
    """What was shown for approval is not what would run."""


class ThreadInBin(Conflict):
    """This conversation is in the bin. Move it back first."""


class NotDeletable(Conflict):
    """The class that keeps a copy of this conversation cannot delete it."""


class ApprovalWithdrawn(Conflict):
    """This approval was withdrawn."""


class PauseRequired(Conflict):
    """This request has paused more than once: say which pause is meant."""


class AlreadyTerminal(Conflict):
    """This run has already ended."""


class NotSteerable(Conflict):
    """This run takes no further message."""


class CommitReused(Conflict):
    """This commit id was used for other events."""


class ShuttingDown(TealError):
    """This server is shutting down; try again in a moment."""


class LimitExceeded(TealError):
    """A limit was reached."""


class BudgetExceeded(LimitExceeded):
    """The budget is used up."""


class CounterFull(LimitExceeded):
    """The amount would pass its limit; nothing was added."""


class StoreFull(LimitExceeded):
    """The store has no room; nothing was written."""


class StateCorrupt(TealError):
    """A stored record is damaged; it was left as it is."""


class StoreError(TealError):
    """The store cannot serve."""

    code = "store_unavailable"


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""


class StoreBroken(StoreUnavailable):
    """The store broke, its log says how: this process cannot know what is kept and must end."""


class StoreBusy(StoreError):
    """The store is locked by another process."""


class StoreReadOnly(StoreError):
    """The store cannot be written."""


class CommitOutcomeUnknown(StoreError):
    """The commit may or may not have been stored; send the same commit id again to learn which."""


class SchemaTooNew(StoreError):
    """The store was written by a newer version; it was not touched."""


class ModelError(TealError):
    """The model did not give a usable reply."""

    code = "llm_unavailable"


class ModelRateLimited(ModelError):
    """The model's provider is limiting requests."""

    code = "llm_rate_limited"


class ModelUnavailable(ModelError):
    """The model's provider cannot be reached."""

    code = "llm_unavailable"


class ModelInterrupted(ModelError):
    """The model's reply broke off."""

    code = "llm_interrupted"


class ModelProtocolError(ModelError):
    """The model's reply could not be understood."""

    code = "llm_protocol"


class ReplyTooLarge(ModelError):
    """The model's reply is larger than it may be."""

    code = "llm_reply_too_large"


class ModelRefused(ModelError):
    """The model's provider refused the request."""

    code = "llm_refused"


class ContextTooLong(ModelError):
    """The conversation does not fit the model's window."""

    code = "llm_context"


class OutputInvalid(ModelError):
    """The model's answer is not of the type that this agent must give."""

    code = "output_invalid"


class GuardrailTripped(ModelError):
    """A guardrail of this agent stopped the run."""

    code = "guardrail_tripped"


class AgentCodeFailed(ModelError):
    """A function that belongs to this agent failed."""

    code = "agent_failed"


class UpstreamFailed(TealError):
    """A server that this one asked for you did not answer as it should."""

    # Users read its message: it names a server as the configuration does, and no host.


class ToolError(TealError):
    """The tool could not do this."""


class ToolInterrupted(ToolError):
    """The tool broke off. Whether it took effect is not known: check before you repeat it."""


class AgentsException(TealError):
    """Something went wrong."""

    code = "internal"

    @property
    def message(self) -> str:
        return str(self)


class PersistenceCreateError(AgentsException, StoreError):
    """The task could not be created."""

    code = "store_unavailable"


class PersistenceLoadError(AgentsException, StoreError):
    """The task could not be loaded."""

    code = "store_unavailable"


class PersistenceUpdateError(AgentsException, StoreError):
    """The task could not be updated."""

    code = "store_unavailable"


class PersistenceDeleteError(AgentsException, StoreError):
    """The task could not be deleted."""

    code = "store_unavailable"


class InvalidConfigException(AgentsException, ConfigurationError):
    """The configuration is not usable."""

    code = "configuration"


class PluginCatalogDefinitionException(AgentsException, ConfigurationError):
    """The plugin catalog is not in its form."""

    code = "configuration"


class PluginFileReadException(AgentsException, ConfigurationError):
    """The plugin catalog cannot be read."""

    code = "configuration"


class AuthenticationException(AgentsException, Unauthenticated):
    """The request carries no valid credentials."""

    code = "unauthenticated"


class InvalidInputException(AgentsException, InvalidInput):
    """The input is not acceptable."""

    code = "invalid_input"


class AgentInvokeException(AgentsException):
    """The agent could not be invoked."""

    code = "internal"
