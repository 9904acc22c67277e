"""Addresses that a model or data may name: what is refused, and where a connection really goes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest
from aiohttp import web

from sk_agents.exceptions import ToolError
from sk_agents.tools.addresses import (
    AllowedUrls,
    CheckedAddress,
    PinnedResolver,
    Resolve,
    checked_address,
    is_public,
    redirect_target,
    system_addresses,
)
from tests.patience import seconds

PUBLIC = "93.184.216.34"


def names(**known: str) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        key = host.replace(".", "_")
        if key not in known:
            raise OSError("no such host")
        return known[key].split()

    return resolve


async def checked(url: str, allow: AllowedUrls | None = None, /, **known: str) -> CheckedAddress:
    return await checked_address(url, allow=allow or AllowedUrls(), resolve=names(**known))


async def refusal(url: str, allow: AllowedUrls | None = None, /, **known: str) -> str:
    with pytest.raises(ToolError) as caught:
        await checked(url, allow, **known)
    return str(caught.value)


async def test_public_host_is_allowed_with_the_addresses_it_had() -> None:
    found = await checked("HTTPS://Example.COM./a?b=c#d", example_com=f"{PUBLIC} 2606:2800::1")
    assert found == CheckedAddress(
        "https://example.com/a?b=c", "example.com", 443, (PUBLIC, "2606:2800::1")
    )


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[2606:4700::1111%25eth0]",
        "[2606:4700::1111%eth0]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    ],
)
async def test_address_that_is_not_public_is_refused(host: str) -> None:
    assert "not allowed" in await refusal(f"http://{host}/")


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "1.2.3.4.5",
        "0x",
        "１２７.０.０.１",
        "127。0。0。1",
        "⑯⑨.254.169.254",
        "[v1.a:b]",
    ],
)
async def test_oddly_spelt_address_is_refused(host: str) -> None:
    # A resolver would say yes to each of them.
    reason = await refusal(f"http://{host}/", **{host.replace(".", "_"): PUBLIC})
    assert "not allowed" in reason


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("localtest.me", "127.0.0.1"),
        ("metadata.internal", "169.254.169.254"),
        ("mixed.example", f"{PUBLIC} 10.0.0.1"),
        ("six.example", "::1"),
        ("scoped.example", "fe80::1%eth0"),
        ("scoped.example", "2606:4700::1111%eth0"),
        ("mapped.example", "::ffff:10.0.0.1"),
        ("broken.example", "not-an-address"),
    ],
)
async def test_name_that_leads_to_a_private_address_is_refused(name: str, addresses: str) -> None:
    reason = await refusal(f"https://{name}/", **{name.replace(".", "_"): addresses})
    assert "not a public address" in reason


async def test_localhost_is_refused_by_what_the_system_says_it_is() -> None:
    with pytest.raises(ToolError, match="not a public address"):
        await checked_address("http://localhost/")


async def test_name_that_nobody_knows_is_refused() -> None:
    assert "cannot be resolved" in await refusal("https://gone.example/")
    assert "cannot be resolved" in await refusal("https://empty.example/", empty_example="")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.com/",
        "data:text/plain,hello",
        "ftp://example.com/",
        "javascript:alert(1)",
        "//example.com/",
        "example.com",
        "",
    ],
)
async def test_other_schemes_are_refused(url: str) -> None:
    assert "only http and https" in await refusal(url, example_com=PUBLIC)


async def test_http_can_be_left_out_of_what_is_allowed() -> None:
    allow = AllowedUrls(schemes=frozenset({"https"}))
    assert "only https" in await refusal("http://example.com/", allow, example_com=PUBLIC)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://user:secret@example.com/", "credentials"),
        ("https://example.com@127.0.0.1/", "credentials"),
        ("https://@example.com/", "credentials"),
        ("https://example.com:22/", "port 22"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "port is not a number"),
        ("https://example.com:x/", "port is not a number"),
        ("https://exa mple.com/", "spaces"),
        ("https://example.com/\r\nHost: x", "spaces"),
        ("https://example.com\\@127.0.0.1/", "backslashes"),
        ("https://exam%70le.com/", "not a name"),
        ("https:///path", "not a name"),
        ("https://[::1/", "not a URL"),
        ("https://[fe80::zz]/", "not a"),
        ("https://-x.com/", "not a name"),
        (f"https://{'a' * 64}.com/", "not a name"),
        (f"https://example.com/{'a' * 9000}", "longer than"),
    ],
)
async def test_url_that_could_be_read_in_two_ways_is_refused(url: str, reason: str) -> None:
    assert reason in await refusal(url, example_com=PUBLIC)


async def test_secret_in_a_refused_url_is_not_repeated() -> None:
    assert "hunter2" not in await refusal("https://me:hunter2@example.com/")


async def test_operator_may_allow_ports_and_private_hosts() -> None:
    allow = AllowedUrls(ports=frozenset({8080}), hosts=frozenset({"wiki.internal"}))
    found = await checked("http://wiki.internal:8080/x", allow, wiki_internal="10.0.0.7")
    assert (found.url, found.addresses) == ("http://wiki.internal:8080/x", ("10.0.0.7",))
    assert "port 80 " in await refusal("http://wiki.internal/", allow, wiki_internal="10.0.0.7")


@pytest.mark.parametrize("address", [PUBLIC, "1.1.1.1", "2606:4700::1111", "2a00:1450::1"])
def test_addresses_of_the_open_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=request.headers["Host"])

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def test_connection_goes_to_the_checked_address_whatever_the_name_means_later(
    port: int,
) -> None:
    answers = iter([["127.0.0.1"], ["10.255.255.1"]])

    async def changing(host: str, port: int) -> Sequence[str]:
        return next(answers)

    allow = AllowedUrls(ports=frozenset({port}), hosts=frozenset({"rebinding.example"}))
    url = f"http://rebinding.example:{port}/"
    found = await checked_address(url, allow=allow, resolve=changing)
    connector = aiohttp.TCPConnector(resolver=PinnedResolver(found), use_dns_cache=False)
    async with asyncio.timeout(seconds(5)), aiohttp.ClientSession(connector=connector) as session:
        async with session.get(found.url) as response:
            assert await response.text() == f"rebinding.example:{port}"
        # A redirect to a name that was not checked does not get a connection.
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://localhost:{port}/")
    with pytest.raises(ToolError, match="not a public address"):
        await checked_address(url, allow=AllowedUrls(ports=frozenset({port})), resolve=changing)


async def test_pinned_resolver_keeps_families_apart() -> None:
    resolver = PinnedResolver(CheckedAddress("", "x.example", 443, (PUBLIC, "2606:4700::1")))
    found = await resolver.resolve("X.example.", 443, socket.AF_INET6)
    assert [entry["host"] for entry in found] == ["2606:4700::1"]
    assert len(await resolver.resolve("x.example", 443)) == 2
    only_four = PinnedResolver(CheckedAddress("", "x.example", 443, (PUBLIC,)))
    with pytest.raises(OSError, match="family"):
        await only_four.resolve("x.example", 443, socket.AF_INET6)
    await resolver.close()


async def test_system_resolver_knows_this_machine() -> None:
    assert set(await system_addresses("localhost", 80)) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("location", "target", "is_same"),
    [
        ("/b?c=d", "https://api.example/b?c=d", True),
        ("b", "https://api.example/a/b", True),
        ("https://API.example/b", "https://api.example/b", True),
        ("https://cdn.example/b", "https://cdn.example/b", False),
        ("https://store.example:8443/", "https://store.example:8443/", False),
    ],
)
def test_redirect_stays_with_the_service_or_goes_where_the_operator_allows(
    location: str, target: str, is_same: bool
) -> None:
    hosts = ["cdn.example", "store.example:8443"]
    assert redirect_target("https://api.example/a/x", location, hosts=hosts) == (target, is_same)


def test_redirect_from_http_to_https_is_the_same_service() -> None:
    found = redirect_target("http://api.example/a", "https://api.example/a")
    assert found == ("https://api.example/a", True)


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/",
        "//evil.example/",
        "https://api.example:8443/",
        "http://api.example/",
        "http://cdn.example/",
        "https://cdn.example:8443/",
        "https://user@api.example/",
        "file:///etc/passwd",
        "http://169.254.169.254/",
        "https://api.example\\@evil.example/",
    ],
)
def test_redirect_elsewhere_is_refused(location: str) -> None:
    with pytest.raises(ToolError):
        redirect_target("https://api.example/a", location, hosts=["cdn.example"])


async def test_name_whose_first_label_is_a_number_is_a_name() -> None:
    found = await checked("http://1.example/", **{"1_example": PUBLIC})
    assert (found.host, found.addresses) == ("1.example", (PUBLIC,))


@pytest.mark.parametrize(("length", "is_name"), [(253, True), (254, False)])
async def test_name_is_as_long_as_a_resolver_takes(length: int, is_name: bool) -> None:
    host = ("a" * 49 + ".") * 5 + "a" * (length - 250)
    assert len(host) == length
    known = {host.replace(".", "_"): PUBLIC}
    if is_name:
        assert (await checked(f"http://{host}/", **known)).host == host
    else:
        assert "not a name" in await refusal(f"http://{host}/", **known)


def test_redirect_to_another_scheme_is_refused_as_an_address_that_is_not_allowed() -> None:
    with pytest.raises(ToolError, match="an address that is not allowed"):
        redirect_target("https://api.example/a", "ftp://cdn.example/", hosts=["cdn.example:0"])


def test_redirect_to_https_of_another_host_is_refused() -> None:
    with pytest.raises(ToolError):
        redirect_target("http://api.example/a", "https://evil.example/a")


async def test_host_that_cannot_be_written_in_ascii_is_refused() -> None:
    assert "not a name" in await refusal("http://" + "\u00e9" * 64 + ".example/")
