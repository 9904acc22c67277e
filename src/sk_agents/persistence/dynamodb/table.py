"""Requests to one DynamoDB table: sent by botocore in threads, repeated by us.

botocore signs, finds credentials and the endpoint, and speaks through proxies as AWS's own tools
do. It repeats nothing: what was throttled waits on the event loop, where waiting holds no thread,
and longer each time, by a random part of a time that doubles.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, NoReturn
from urllib.parse import urlsplit

from sk_agents.exceptions import (
    ConfigurationError,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TealError,
)
from sk_agents.persistence.dynamodb.address import TableAddress

try:
    import botocore.session  # type: ignore[import-untyped]  # has no types
    from botocore import xform_name
    from botocore.config import Config  # type: ignore[import-untyped]  # has no types
    from botocore.exceptions import (  # type: ignore[import-untyped]  # has no types
        BotoCoreError,
        ClientError,
        ConnectionError,
        ConnectTimeoutError,
        EndpointConnectionError,
        HTTPClientError,
        NoCredentialsError,
        NoRegionError,
        ProxyConnectionError,
    )
except ImportError as error:
    raise ConfigurationError(
        "DynamoDB's client is not installed: pip install 'teal-agents[dynamodb]'"
    ) from error

logger = logging.getLogger(__name__)

Item = dict[str, Any]
Key = dict[str, Any]

# So many requests at once. More threads only wait for the interpreter lock.
THREADS = 16
CONNECT_SECONDS = 5
READ_SECONDS = 10
# How long a request is repeated before its caller is told.
PATIENCE_SECONDS = 15.0
RENEWAL_PATIENCE_SECONDS = 4.0
FIRST_PAUSE = 0.025
LONGEST_PAUSE = 1.0

AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")

# What the service takes at once.
MOST_IN_TRANSACTION = 100
MOST_IN_BATCH_READ = 100
MOST_IN_BATCH_WRITE = 25

_THROTTLED = frozenset(
    (
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
    )
)
# Nothing was done, and the same request may be taken soon.
_PASSING = _THROTTLED | {"TransactionConflict", "TransactionConflictException"}
# The first attempt may still take effect; the same request says what became of it.
_UNSURE = frozenset(
    (
        "InternalFailure",
        "InternalServerError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "TransactionInProgressException",
    )
)
_REFUSED_ACCESS = frozenset(
    (
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    )
)


class ConditionFailed(Exception):
    """A condition of the request does not hold.

    If it `may_be_ours`, an earlier attempt of this very request has perhaps been stored: its answer
    was lost. Otherwise nothing was written.
    """

    may_be_ours = False


class NoSuchTable(StoreUnavailable):
    """There is no such table."""


class Refused(Exception):
    """The service takes no such request, whatever the table holds. Nothing was written."""


class Unanswered(Exception):
    """No answer came, or none that says whether the request took effect."""


class Table:
    """Open from `open` until `close`; `send_now` works from any thread.

    `operations`, `read_units`, `write_units` and `throttled` count what was sent and answered.
    """

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._client: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._service_clock = ServiceClock()
        self.operations: Counter[str] = Counter()
        self.read_units = 0.0
        self.write_units = 0.0
        self.throttled = 0

    def __str__(self) -> str:
        return str(self._address)

    @property
    def name(self) -> str:
        return self._address.table

    async def open(self) -> None:
        """Raises ConfigurationError: no region, or a profile that is not there."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dynamodb")
        loop = asyncio.get_running_loop()
        self._client = await loop.run_in_executor(self._threads, self._new_client)

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            await asyncio.to_thread(self._client.close)
            self._threads = self._client = None

    @property
    def is_aws(self) -> bool:
        """Whether AWS itself keeps it, and not what answers at another endpoint."""
        host = urlsplit(self._client.meta.endpoint_url).hostname or ""
        return host.endswith(AWS_DOMAINS)

    def service_time(self) -> float | None:
        """Seconds by the service's own clock, as its answers tell it; `None` before the first."""
        return self._service_clock.now()

    async def send(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """The service's answer. What may pass is tried again for a while.

        Raises:
            ConditionFailed, Refused, Unanswered: see there.
            StoreBusy: throttled all the time; nothing was written.
            StoreError: the table cannot be used.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        pause, was_unsure = FIRST_PAUSE, False
        while True:
            if self._threads is None:
                raise StoreUnavailable(f"{self}: the store is not open")
            try:
                call = self._threads.submit(self._call, operation, parameters)
                answer, sent_at, came_at = await asyncio.wrap_future(call)
            except (ClientError, BotoCoreError) as error:
                was_unsure = self._look_at(error, was_unsure) or was_unsure
                delay = random.uniform(0, pause)
                if time.monotonic() + delay > end:
                    self._give_up(error, was_unsure)
                await asyncio.sleep(delay)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self._note(operation, answer, sent_at, came_at)
            return answer

    def send_now(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """The same past the event loop, for a few seconds at most. Raises StoreError as well if
        no answer came."""
        end = time.monotonic() + RENEWAL_PATIENCE_SECONDS
        pause, was_unsure = FIRST_PAUSE, False
        while True:
            if self._client is None:
                raise StoreUnavailable(f"{self}: the store is not open")
            try:
                answer, sent_at, came_at = self._call(operation, parameters)
            except (ClientError, BotoCoreError) as error:
                was_unsure = self._look_at(error, was_unsure) or was_unsure
                delay = random.uniform(0, pause)
                if time.monotonic() + delay > end:
                    raise self._unreachable(error) from error
                time.sleep(delay)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self._note(operation, answer, sent_at, came_at)
            return answer

    async def get(self, key: Key) -> Item | None:
        """A consistent read, as all of these are."""
        answer = await self._read("GetItem", Key=key)
        found: Item | None = answer.get("Item")
        return found

    async def get_all(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Item]:
        """Those of these items that are there. They are not all of one moment."""
        wanted = list(dict.fromkeys(keys))
        parts = [
            wanted[start : start + MOST_IN_BATCH_READ]
            for start in range(0, len(wanted), MOST_IN_BATCH_READ)
        ]
        found: dict[tuple[str, str], Item] = {}
        for items in await asyncio.gather(*map(self._get_batch, parts)):
            found.update({(item["pk"]["S"], item["sk"]["S"]): item for item in items})
        return found

    async def query(
        self, condition: str, values: Mapping[str, Any], **parameters: Any
    ) -> AsyncGenerator[list[Item], None]:
        """The pages of a query. With an index they may lack what was written just now."""
        if "IndexName" not in parameters:
            parameters["ConsistentRead"] = True
        while True:
            answer = await self._send_reading(
                "Query",
                KeyConditionExpression=condition,
                ExpressionAttributeValues=dict(values),
                **parameters,
            )
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            parameters["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def put(
        self, item: Item, condition: str | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        await self.send("PutItem", Item=item, **_conditional(condition, values))

    async def delete(
        self, key: Key, condition: str | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        await self.send("DeleteItem", Key=key, **_conditional(condition, values))

    async def transact(self, actions: Sequence[dict[str, Any]]) -> None:
        """All of these or none. Repeated by us, it takes effect once."""
        for action in actions:
            for one in action.values():
                one["TableName"] = self.name
        await self.send(
            "TransactWriteItems",
            TransactItems=list(actions),
            ClientRequestToken=str(uuid.uuid4()),
        )

    async def write_all(self, requests: Sequence[dict[str, Any]]) -> None:
        """Puts and deletions without conditions, in any order, not all at once."""
        for start in range(0, len(requests), MOST_IN_BATCH_WRITE):
            await self._write_batch(list(requests[start : start + MOST_IN_BATCH_WRITE]))

    async def _write_batch(self, left: list[dict[str, Any]]) -> None:
        pause = Pauses()
        while left:
            answer = await self.send("BatchWriteItem", RequestItems={self.name: left})
            left = answer.get("UnprocessedItems", {}).get(self.name, [])
            if left:
                self.throttled += 1
                await pause.wait(self)

    async def _get_batch(self, keys: Sequence[tuple[str, str]]) -> list[Item]:
        found: list[Item] = []
        left = [{"pk": {"S": pk}, "sk": {"S": sk}} for pk, sk in keys]
        pause = Pauses()
        while left:
            answer = await self._send_reading(
                "BatchGetItem", RequestItems={self.name: {"Keys": left, "ConsistentRead": True}}
            )
            found += answer["Responses"].get(self.name, [])
            left = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
            if left:
                self.throttled += not answer["Responses"].get(self.name)
                await pause.wait(self)
        return found

    async def _read(self, operation: str, **parameters: Any) -> dict[str, Any]:
        return await self._send_reading(operation, ConsistentRead=True, **parameters)

    async def _send_reading(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Raises StoreError: also if no answer came, for a read changes nothing."""
        try:
            return await self.send(operation, **parameters)
        except (Unanswered, Refused) as error:
            raise StoreUnavailable(f"{self}: {error}") from error

    def _new_client(self) -> Any:
        session = botocore.session.get_session()
        # What describes the service is read once in a process: it takes a tenth of a second.
        session.register_component("data_loader", _loader())
        try:
            return session.create_client(
                "dynamodb",
                region_name=self._address.region,
                endpoint_url=self._address.endpoint,
                config=Config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    # One more for leases, which are renewed from a thread of their own.
                    max_pool_connections=THREADS + 2,
                    parameter_validation=False,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                    tcp_keepalive=True,
                    user_agent_extra="teal-agents",
                ),
            )
        except NoRegionError:
            raise ConfigurationError(
                f"{self}: no region: add ?region=... to the URL, or set AWS_REGION"
            ) from None
        except BotoCoreError as error:
            raise ConfigurationError(f"{self}: {_line(error)}") from error

    def _call(
        self, operation: str, parameters: Mapping[str, Any]
    ) -> tuple[dict[str, Any], float, float]:
        """The answer, and when it was asked for and came. In any thread."""
        place: dict[str, Any] = {"TableName": self.name}
        if operation in ("TransactWriteItems", "BatchGetItem", "BatchWriteItem"):
            place = {}
        if operation in _COUNTED:
            place["ReturnConsumedCapacity"] = "TOTAL"
        sent_at = time.monotonic()
        method = getattr(self._client, xform_name(operation))
        answer: dict[str, Any] = method(**place, **parameters)
        return answer, sent_at, time.monotonic()

    def _note(
        self, operation: str, answer: Mapping[str, Any], sent_at: float, came_at: float
    ) -> None:
        self.operations[operation] += 1
        consumed = answer.get("ConsumedCapacity") or []
        units = sum(
            one.get("CapacityUnits", 0.0)
            for one in (consumed if isinstance(consumed, list) else [consumed])
        )
        if operation in _READS:
            self.read_units += units
        else:
            self.write_units += units
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        if date is not None:
            self._service_clock.learn(date, sent_at, came_at)

    def _look_at(self, error: Exception, was_unsure: bool) -> bool:
        """Return if the request may be sent again: whether it may have taken effect by now.

        Raises:
            ConditionFailed, Refused, StoreError: it may not.
        """
        if isinstance(error, ConnectTimeoutError | EndpointConnectionError | ProxyConnectionError):
            return False  # there was no connection
        if isinstance(error, ConnectionError | HTTPClientError):
            return True
        if isinstance(error, NoCredentialsError):
            raise StoreUnavailable(f"{self}: no AWS credentials were found") from error
        if not isinstance(error, ClientError):
            raise StoreUnavailable(f"{self}: {_line(error)}") from error
        code = error.response.get("Error", {}).get("Code", "")
        if code == "TransactionCanceledException":
            return self._look_at_reasons(error, was_unsure)
        if code == "ConditionalCheckFailedException":
            raise _failed_condition(was_unsure) from error
        if code in _PASSING:
            self.throttled += code in _THROTTLED
            return False
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _UNSURE or status >= 500:
            return True
        if code in ("ValidationException", "UnknownOperationException"):
            raise Refused(_line(error)) from error
        if code == "ResourceNotFoundException":
            raise NoSuchTable(f"{self}: there is no such table") from error
        if code in _REFUSED_ACCESS:
            raise StoreUnavailable(f"{self}: AWS refuses access ({_line(error)})") from error
        raise StoreError(f"{self}: the table refused ({_line(error)})") from error

    def _look_at_reasons(self, error: ClientError, was_unsure: bool) -> bool:
        reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
        if "ConditionalCheckFailed" in reasons:
            raise _failed_condition(was_unsure) from error
        if reasons - {None, "None"} <= _PASSING:
            self.throttled += bool(reasons & _THROTTLED)
            return False
        raise Refused(_line(error)) from error

    def _give_up(self, error: Exception, was_unsure: bool) -> NoReturn:
        if was_unsure:
            raise Unanswered(f"no answer ({_line(error)})") from error
        raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> TealError:
        if isinstance(error, ClientError):
            return StoreBusy(f"{self}: the table is throttled ({_line(error)})")
        return StoreUnavailable(f"{self}: DynamoDB cannot be reached ({_line(error)})")


class Pauses:
    """Waits that grow, for what a batch left undone."""

    def __init__(self) -> None:
        self._end = time.monotonic() + PATIENCE_SECONDS
        self._pause = FIRST_PAUSE

    async def wait(self, place: object) -> None:
        """Raises StoreBusy: it has been long enough."""
        if time.monotonic() > self._end:
            raise StoreBusy(f"{place}: the table is throttled")
        await asyncio.sleep(random.uniform(0, self._pause))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


class ServiceClock:
    """The service's clock, from the dates of its answers.

    A date is cut to whole seconds and was written while its answer was awaited. So each answer
    bounds how far the service's clock is ahead of ours, and the bounds soon lie close together.
    """

    def __init__(self) -> None:
        # Of this process's monotonic clock, in seconds.
        self.ahead: float | None = None

    def learn(self, date: str, sent_at: float, came_at: float) -> None:
        try:
            told = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        least, most = told - came_at, told + 1 - sent_at
        ahead = least if self.ahead is None else self.ahead
        self.ahead = min(max(ahead, least), most)

    def now(self) -> float | None:
        return None if self.ahead is None else time.monotonic() + self.ahead


@cache
def _loader() -> Any:
    return botocore.session.get_session().get_component("data_loader")


_READS = frozenset(("BatchGetItem", "GetItem", "Query"))
_COUNTED = _READS | {
    "BatchWriteItem",
    "DeleteItem",
    "PutItem",
    "TransactWriteItems",
    "UpdateItem",
}


def _conditional(condition: str | None, values: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if condition is not None:
        found["ConditionExpression"] = condition
    if values:
        found["ExpressionAttributeValues"] = dict(values)
    return found


def _failed_condition(was_unsure: bool) -> ConditionFailed:
    failed = ConditionFailed()
    failed.may_be_ours = was_unsure
    return failed


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
