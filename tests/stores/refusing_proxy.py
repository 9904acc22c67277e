"""A proxy before an emulator of DynamoDB that refuses requests, or loses their answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import orjson
from aiohttp import ClientSession, web

CODES = ("ProvisionedThroughputExceededException", "ThrottlingException")
# Whether to do something to this request; it is named by its operation.
Choice = Callable[[str], bool]


class RefusingProxy:
    """Runs while it is entered, on the loop of the test.

    `refused` are answered instead of passed on, of those that are `cut` the connection is closed;
    the answers of those that are `lost` are not passed back.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.refused: Choice = lambda operation: False
        self.lost: Choice = lambda operation: False
        self.cut: Choice = lambda operation: False
        self.passed: Counter[str] = Counter()
        self.refusals = 0

    async def __aenter__(self) -> Self:
        self._client = ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_post("/", self._handle)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def refuse_half(self, seed: int) -> None:
        chance = random.Random(seed)
        self.refused = lambda operation: chance.random() < 0.5

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        if self.cut(operation):
            return _closed(request)
        if self.refused(operation):
            self.refusals += 1
            return _refusal(operation, CODES[self.refusals % 2])
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("host", "content-length", "transfer-encoding")
        }
        body = await request.read()
        async with self._client.post(self._endpoint, data=body, headers=headers) as answer:
            content = await answer.read()
        self.passed[operation] += 1
        if self.lost(operation):
            return _closed(request)
        return web.Response(
            body=content,
            status=answer.status,
            headers={"Content-Type": "application/x-amz-json-1.0"},
        )


def _closed(request: web.Request) -> web.Response:
    """The connection is closed instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _refusal(operation: str, code: str) -> web.Response:
    told: dict[str, Any] = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code}
    if operation == "TransactWriteItems" and code == "ThrottlingException":
        told["__type"] = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
        told["CancellationReasons"] = [{"Code": "None"}, {"Code": "ThrottlingError"}]
    return web.Response(
        body=orjson.dumps(told),
        status=400,
        headers={"Content-Type": "application/x-amz-json-1.0"},
    )
