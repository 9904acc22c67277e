"""Who is calling, over HTTP: a tiny real application that answers with the caller."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import httpx
import pytest
from fastapi import Depends, FastAPI, Request

from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.exceptions import (
    ConfigurationError,
    Forbidden,
    NotFound,
    ThreadNotFound,
    Unauthenticated,
)
from sk_agents.http.caller import (
    AUTHORIZER_SLOTS,
    Caller,
    CallerCheck,
    acting_caller,
    check_bind_address,
    current_caller,
    owned_by,
    require_owner,
)
from sk_agents.http.front import TealApp
from sk_agents.testing.header_authorizer import HeaderAuthorizer
from tests.patience import seconds
from tests.requirements import requirement

Headers = dict[str, str] | list[tuple[str, str]]
SECRET = "Bearer canary"


class Own(RequestAuthorizer):
    """An operator's authorizer doing whatever a test wants."""

    def __init__(self, answer: Callable[[str], object]) -> None:
        self._answer = answer

    def authorize_request(self, auth_header: str) -> str | Awaitable[str]:
        return self._answer(auth_header)  # type: ignore[return-value]  # tests return nonsense too


def raising(error: BaseException) -> Own:
    def answer(header: str) -> object:
        raise error

    return Own(answer)


def application(authorizer: RequestAuthorizer, **bounds: float) -> FastAPI:
    app = TealApp()
    app.state.caller_check = CallerCheck(authorizer, **bounds)  # type: ignore[arg-type]  # timeout

    @app.get("/whoami")
    async def whoami(caller: Caller = Depends(current_caller)) -> list[str | None]:  # noqa: B008
        return [caller.user_id, caller.authorization]

    return app


async def get(app: FastAPI, headers: Headers | None = None, host: str = "test") -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.get("/whoami", headers=headers)


@requirement("S001-auth-valid-user", "S000-auth-caller")
async def test_caller_is_who_the_authorizer_says() -> None:
    response = await get(
        application(HeaderAuthorizer()),
        {"Authorization": "Bearer alice", "X-User-Id": "mallory", "Cookie": "user=mallory"},
    )
    assert response.json() == ["alice", "Bearer alice"]


async def test_dummy_needs_no_header() -> None:
    assert (await get(application(DummyAuthorizer()))).json() == ["dummyuser", None]


async def test_authorizer_is_asked_about_an_empty_header_where_there_is_none() -> None:
    asked: list[object] = []

    def answer(header: str) -> str:
        asked.append(header)
        return "ada"

    await get(application(Own(answer)))
    assert asked == [""]


async def test_user_named_by_the_body_comes_before_the_one_in_the_query() -> None:
    app = application(DummyAuthorizer())

    @app.get("/acting")
    async def acting(request: Request) -> str:
        return (await acting_caller(request, "bob")).user_id

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/acting?user_id=eve")).json() == "bob"


@requirement("S001-auth-missing-header")
async def test_missing_header_is_answered_401() -> None:
    response = await get(application(HeaderAuthorizer()))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.json()["code"] == "unauthenticated"


@requirement("S001-auth-invalid-user", "S001-message-authorization")
@pytest.mark.parametrize(
    "error",
    [Unauthenticated(), ValueError(SECRET), StopIteration(SECRET), SystemExit(1), TimeoutError()],
    ids=repr,
)
async def test_refused_header_is_answered_401_and_repeated_nowhere(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        response = await get(application(raising(error)), {"Authorization": SECRET})
    assert response.status_code == 401
    assert response.json()["detail"] == str(Unauthenticated())
    told = response.text + "".join(f"{vars(record)}" for record in caplog.records)
    assert "canary" not in told


async def test_authorizer_may_say_forbidden() -> None:
    assert (await get(application(raising(Forbidden())))).status_code == 403


async def test_token_in_an_address_is_refused_and_not_repeated() -> None:
    transport = httpx.ASGITransport(application(Own(lambda header: "ada")))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for headers in ({}, {"Authorization": SECRET}):
            answer = await client.get("/whoami?access_token=canary", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
            assert "canary" not in answer.text


async def test_two_authorization_headers_are_refused() -> None:
    headers = [("Authorization", "Bearer alice"), ("Authorization", "Bearer bob")]
    assert (await get(application(HeaderAuthorizer()), headers)).status_code == 401


async def test_header_of_absurd_length_is_refused() -> None:
    response = await get(application(HeaderAuthorizer()), {"Authorization": "a" * 20_000})
    assert response.status_code == 401


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 401)])
async def test_longest_header_is_taken_and_one_letter_more_is_not(more: int, status: int) -> None:
    header = "Bearer alice".ljust(16 * 1024 + more, "x")
    app = application(Own(lambda header: "alice"))
    assert (await get(app, {"Authorization": header})).status_code == status


@requirement("S001-authorizer-sync-class")
async def test_plain_method_coroutine_and_awaitable_all_work() -> None:
    class Coroutine(RequestAuthorizer):
        async def authorize_request(self, auth_header: str) -> str:
            return "coroutine"

    async def later(header: str) -> str:
        return "awaitable"

    authorizers = [Own(lambda header: "plain"), Coroutine(), Own(later)]
    answers = [(await get(application(authorizer))).json()[0] for authorizer in authorizers]
    assert answers == ["plain", "coroutine", "awaitable"]


async def test_own_method_of_a_class_derived_from_ours_is_as_any_other() -> None:
    class Failing(DummyAuthorizer):
        def authorize_request(self, auth_header: str) -> str:
            raise ValueError("canary")

    class Immediate(DummyAuthorizer):
        is_immediate = True

        def authorize_request(self, auth_header: str) -> str:
            return "ada"

    assert (await get(application(Failing()))).status_code == 401
    assert (await get(application(Immediate()))).json()[0] == "ada"


@pytest.mark.parametrize("says", [True, False])
async def test_only_a_class_that_says_its_own_method_does_not_block_is_called_at_once(
    says: bool,
) -> None:
    class Named(RequestAuthorizer):
        is_immediate = says

        def authorize_request(self, auth_header: str) -> str:
            return threading.current_thread().name

    class Derived(Named):
        def authorize_request(self, auth_header: str) -> str:
            return super().authorize_request(auth_header)

    here = threading.current_thread().name
    answers = [(await get(application(one))).json()[0] for one in (Named(), Derived())]
    assert [answer == here for answer in answers] == [says, False]


@pytest.mark.parametrize(
    "answer",
    ["", " ", "\u3000 ", "\u200b\u2060", "a" * 257, "a\nb", "a\x00", "\ud800", None, 7, b"alice"],
)
async def test_unusable_user_id_is_answered_401(answer: object) -> None:
    assert (await get(application(Own(lambda header: answer)))).status_code == 401


async def test_longest_user_id_is_taken() -> None:
    assert (await get(application(Own(lambda header: "a" * 256)))).json()[0] == "a" * 256


async def test_blocking_authorizer_gives_503_and_leaves_the_loop_free() -> None:
    release = threading.Event()
    app = application(Own(lambda header: release.wait(seconds(30))), timeout=0.05)
    try:
        async with asyncio.timeout(seconds(5)):
            responses = await asyncio.gather(*(get(app) for _ in range(AUTHORIZER_SLOTS + 8)))
        assert {response.status_code for response in responses} == {503}
    finally:
        release.set()


async def test_slow_coroutine_gives_503() -> None:
    class Slow(RequestAuthorizer):
        async def authorize_request(self, auth_header: str) -> str:
            await asyncio.Event().wait()
            return "never"

    assert (await get(application(Slow(), timeout=0.05))).status_code == 503


async def test_finished_threads_make_room_for_others() -> None:
    app = application(Own(lambda header: "alice"))
    responses = await asyncio.gather(*(get(app) for _ in range(3 * AUTHORIZER_SLOTS)))
    assert {response.status_code for response in responses} == {200}


async def test_request_at_a_public_address_is_refused_without_proof() -> None:
    insecure, secure = application(DummyAuthorizer()), application(Own(lambda header: "alice"))
    assert (await get(insecure, host="192.0.2.1")).status_code == 401
    assert (await get(insecure, host="127.0.0.1")).status_code == 200
    assert (await get(secure, host="192.0.2.1")).status_code == 200
    allowed = application(DummyAuthorizer(), allow_insecure=True)
    assert (await get(allowed, host="192.0.2.1")).status_code == 200


def test_caller_does_not_show_the_header() -> None:
    assert "canary" not in repr(Caller(Principal("alice"), SECRET))


@requirement("S000-auth-owner", "S001-message-ownership")
def test_owner_passes_and_everybody_else_is_refused() -> None:
    alice = Caller(Principal("alice"))
    assert owned_by(alice, "alice")
    require_owner(alice, "alice", hide_existence=False)
    for owner in ("bob", "Alice", "alice ", ""):
        assert not owned_by(alice, owner)
        with pytest.raises(Unauthenticated) as caught:
            require_owner(alice, owner, hide_existence=False)
        assert str(caught.value) == "This belongs to another user."


def test_hidden_existence_looks_like_an_unknown_thing() -> None:
    with pytest.raises(NotFound):
        require_owner(Caller(Principal("alice")), "bob", hide_existence=True)
    with pytest.raises(ThreadNotFound) as caught:
        require_owner(
            Caller(Principal("alice")), "bob", hide_existence=True, missing=ThreadNotFound
        )
    assert str(caught.value) == str(ThreadNotFound())


@requirement("S000-auth-mock-loopback")
@pytest.mark.parametrize("authorizer", [DummyAuthorizer(), HeaderAuthorizer()])
@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org", "::ffff:8.8.8.8"]
)
def test_authorizer_without_proof_does_not_serve_the_network(
    authorizer: RequestAuthorizer, host: str
) -> None:
    with pytest.raises(ConfigurationError, match="TA_ALLOW_INSECURE_AUTH"):
        check_bind_address(host, authorizer, allow_insecure=False)
    check_bind_address(host, authorizer, allow_insecure=True)
    check_bind_address(host, Own(lambda header: "alice"), allow_insecure=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"])
def test_authorizer_without_proof_serves_loopback(host: str) -> None:
    check_bind_address(host, DummyAuthorizer(), allow_insecure=False)
