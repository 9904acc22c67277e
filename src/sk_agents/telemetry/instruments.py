"""What is measured, as a table: each row becomes a metric of every back-end that is in use.

Values of labels come from the configuration or from our own closed sets, so that their number is
bounded: never an id, a user or anything a client or a model made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sk_agents.telemetry import spans as at

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LONG_SECONDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0)
TOKENS = (1.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0)

METHOD, ROUTE = "http.request.method", "http.route"
STATUS_CODE = "http.response.status_code"


@dataclass(frozen=True, slots=True)
class Instrument:
    """`name` is OpenTelemetry's; `page_name`, at `/metrics`, is made from it unless it is given."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    about: str
    labels: tuple[str, ...] = ()
    page_name: str = ""
    unit: str = "1"
    buckets: tuple[float, ...] = SECONDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "page_name", self.page_name or self.name.replace(".", "_"))


REQUESTS = Instrument(
    "http.server.request.duration",
    "histogram",
    "Requests served; a stream ends with its last frame.",
    (METHOD, ROUTE, STATUS_CODE),
    "teal_http_request_duration_seconds",
    "s",
)
STREAMS = Instrument("teal.http.streams", "gauge", "Event streams that are open here.")
RUNS_STARTED = Instrument("teal.runs.started", "counter", "Runs begun here.", (at.AGENT_NAME,))
RUNS_ENDED = Instrument(
    "teal.run.duration",
    "histogram",
    "Runs ended here, from being asked for to their end, waiting included.",
    (at.AGENT_NAME, at.RUN_STATUS),
    "teal_run_duration_seconds",
    "s",
    LONG_SECONDS,
)
MODEL_CALLS = Instrument(
    "gen_ai.client.operation.duration",
    "histogram",
    "Calls of models, to the end of the reply.",
    (at.OPERATION, at.PROVIDER, at.REQUEST_MODEL, at.ERROR_TYPE),
    "teal_model_call_duration_seconds",
    "s",
)
MODEL_TOKENS = Instrument(
    "gen_ai.client.token.usage",
    "histogram",
    "Tokens of a model call, as its provider counts them.",
    (at.TOKEN_TYPE, at.PROVIDER, at.REQUEST_MODEL),
    "teal_model_tokens",
    "{token}",
    TOKENS,
)
TOOL_CALLS = Instrument(
    "teal.tool.duration",
    "histogram",
    "Executions of tools.",
    (at.TOOL_NAME, at.OUTCOME),
    "teal_tool_call_duration_seconds",
    "s",
)
TOOL_RESULTS = Instrument(
    "teal.tool.results",
    "counter",
    "Calls that got a result, also those that never ran: ok, error, refused, sealed, unknown.",
    (at.OUTCOME,),
)
APPROVALS_REQUESTED = Instrument(
    "teal.approvals.requested", "counter", "Approvals asked for.", (at.APPROVAL_KIND,)
)
APPROVALS_DECIDED = Instrument(
    "teal.approvals.decided",
    "counter",
    "Approvals decided, by whom: human, policy, timeout, cancel, failure.",
    (at.OUTCOME, at.DECIDED_BY),
)
APPROVAL_WAITS = Instrument(
    "teal.approval.wait",
    "histogram",
    "How long approvals waited for their decision.",
    (at.OUTCOME,),
    "teal_approval_wait_seconds",
    "s",
    LONG_SECONDS,
)
RECOVERIES = Instrument("teal.recoveries", "counter", "Orphaned threads taken over.")
LOOP_HELD = Instrument(
    "teal.loop.held",
    "histogram",
    "Times that something held up the event loop for longer than TA_LOOP_HELD_SECONDS.",
    page_name="teal_loop_held_seconds",
    unit="s",
)
# All of the above.
INSTRUMENTS = tuple(one for one in (*globals().values(),) if isinstance(one, Instrument))

Readings = Iterable[tuple[Instrument, Sequence[str], float]]
Read = Callable[[], Readings]
"""Values that are looked up when they are asked for. Cheap, and safe from any thread."""


class Meters(Protocol):
    def record(self, instrument: Instrument, value: float, *labels: str) -> None:
        """Add to a counter or a gauge, or observe; `labels` in the instrument's order."""

    def watch(self, read: Read) -> None:
        """Include these readings whenever values are asked for."""


class AllMeters:
    """Measures for each back-end in use."""

    def __init__(self) -> None:
        self._meters: tuple[Meters, ...] = ()
        self._reads: list[Read] = []

    def add(self, meters: Meters) -> None:
        self._meters = (*self._meters, meters)
        for read in self._reads:
            meters.watch(read)

    def record(self, instrument: Instrument, value: float, *labels: str) -> None:
        for meter in self._meters:
            meter.record(instrument, value, *labels)

    def watch(self, read: Read) -> None:
        self._reads.append(read)
        for meter in self._meters:
            meter.watch(read)


class BoundedNames:
    """The first `limit` different names as they are, any further one as `other`."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._limit:
                return "other"
            self._known.add(name)
        return name
