"""Which proxy an address is reached through."""

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.outbound.proxies import read_proxies

PROXY = {"HTTP_PROXY": "http://plain:3128", "HTTPS_PROXY": "http://secure:3129"}


def through(url: str, **environ: str) -> str | None:
    proxy = read_proxies(environ).proxy_for(url)
    return None if proxy is None else proxy.url


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({}, "https://a.example", None),
        (PROXY, "http://a.example", "http://plain:3128"),
        (PROXY, "https://a.example", "http://secure:3129"),
        ({"HTTP_PROXY": "http://plain:3128"}, "https://a.example", None),
        ({"ALL_PROXY": "http://all:1"}, "https://a.example", "http://all:1"),
        ({**PROXY, "ALL_PROXY": "http://all:1"}, "http://a.example", "http://plain:3128"),
        ({**PROXY, "https_proxy": "http://lower:1"}, "https://a.example", "http://lower:1"),
        ({"all_proxy": "proxy"}, "http://a.example", "http://proxy:80"),
        ({"all_proxy": "proxy:3128"}, "http://a.example", "http://proxy:3128"),
        ({"all_proxy": "https://proxy"}, "http://a.example", "https://proxy:443"),
        ({"all_proxy": "http://[::2]:8"}, "http://a.example", "http://[::2]:8"),
        ({"HTTP_PROXY": " "}, "http://a.example", None),
        ({"HTTPS_PROXY": "", "ALL_PROXY": "http://all:1"}, "https://a.example", "http://all:1"),
    ],
)
def test_variable_for_the_scheme_names_the_proxy(
    environ: dict[str, str], url: str, proxy: str | None
) -> None:
    assert through(url, **environ) == proxy


@pytest.mark.parametrize(
    ("entries", "url", "is_direct"),
    [
        ("a.example", "http://a.example", True),
        ("a.example", "http://b.a.example", True),
        ("a.example", "http://ba.example", False),
        ("A.Example", "http://a.eXample./x", True),
        (".a.example", "http://b.a.example", True),
        (".a.example", "http://a.example", False),
        ("*.a.example", "http://b.a.example", True),
        ("*.a.example", "http://a.example", False),
        ("*", "http://anything.example", True),
        ("b.example, a.example", "http://a.example", True),
        ("b.example a.example", "http://a.example", True),
        ("a.example:8080", "http://a.example:8080", True),
        ("a.example:8080", "http://a.example", False),
        ("a.example:80", "http://a.example", True),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.0.0.0/8:443", "http://10.1.2.3", False),
        ("10.0.0.0/8", "http://ten.example", False),
        ("192.0.2.7", "http://192.0.2.7", True),
        ("192.0.2.7", "http://192.0.2.70", False),
        ("2001:db8::/32", "http://[2001:db8::5]:8080", True),
        ("2001:db8::/32", "http://10.1.2.3", False),
        ("[2001:db8::5]:8080", "http://[2001:db8::5]:8080", True),
        ("[2001:db8::5]:8080", "http://[2001:db8::5]", False),
        (",,", "http://a.example", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_entry_of_no_proxy_covers_what_it_names(
    name: str, entries: str, url: str, is_direct: bool
) -> None:
    found = through(url, HTTP_PROXY="http://plain:3128", **{name: entries})
    assert found == (None if is_direct else "http://plain:3128")


@pytest.mark.parametrize(
    "url", ["http://localhost:8080", "http://127.0.0.1", "http://127.9.9.9", "http://[::1]:1"]
)
def test_this_machine_is_never_reached_through_a_proxy(url: str) -> None:
    assert through(url, HTTP_PROXY="http://plain:3128") is None


def test_credentials_are_decoded_and_appear_in_no_text() -> None:
    environ = {"HTTP_PROXY": "http://us%40er:p%3Aass@plain:3128"}
    proxy = read_proxies(environ).proxy_for("http://a.example")
    assert proxy is not None
    assert (proxy.user, proxy.password) == ("us@er", "p:ass")
    assert "ass" not in repr(proxy) + proxy.url + repr(read_proxies(environ))


@pytest.mark.parametrize("value", ["socks5://h:1", "ftp://h", "http://", "http://h:99999"])
def test_unusable_proxy_is_an_error_for_addresses_that_need_it(value: str) -> None:
    rules = read_proxies({"ALL_PROXY": value, "NO_PROXY": "near.example"})
    assert rules.proxy_for("http://near.example") is None
    with pytest.raises(ConfigurationError, match="ALL_PROXY") as error:
        rules.proxy_for("http://far.example")
    assert value.strip() not in str(error.value) or value == "http://"
