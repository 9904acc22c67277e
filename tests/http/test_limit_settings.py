"""The settings of the edge."""

import pytest

from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.http.body import BODY_SECONDS, MAX_BYTES, MAX_BYTES_WITH_IMAGES
from sk_agents.http.connections import ConnectionLimits
from sk_agents.http.limits import PER_USER


def test_defaults_are_those_of_the_parts_that_use_them() -> None:
    settings = Settings()
    assert settings.max_body_bytes == MAX_BYTES
    assert settings.max_image_body_bytes == MAX_BYTES_WITH_IMAGES
    assert settings.body_timeout == BODY_SECONDS
    assert settings.max_connections == ConnectionLimits().connections
    assert settings.streams_per_user == PER_USER
    assert settings.allowed_hosts is None
    assert settings.allowed_origins is None


def test_names_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_ALLOWED_HOSTS", "Agents.example, 192.0.2.1,[::1],,my_host")
    monkeypatch.setenv("TA_ALLOWED_ORIGINS", "https://Agents.example:8443")
    settings = load_settings()
    assert settings.allowed_hosts == ("agents.example", "192.0.2.1", "[::1]", "my_host")
    assert settings.allowed_origins == ("https://agents.example:8443",)
    monkeypatch.setenv("TA_ALLOWED_HOSTS", "*")
    assert load_settings().allowed_hosts == ("*",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TA_ALLOWED_HOSTS", "a.example:8000"),
        ("TA_ALLOWED_HOSTS", "https://a.example"),
        ("TA_ALLOWED_HOSTS", "a b"),
        ("TA_ALLOWED_HOSTS", "*.example"),
        ("TA_ALLOWED_ORIGINS", "*"),
        ("TA_ALLOWED_ORIGINS", "null"),
        ("TA_ALLOWED_ORIGINS", "a.example"),
        ("TA_ALLOWED_ORIGINS", "https://a.example/"),
        ("TA_MAX_CONNECTIONS", "0"),
        ("TA_MAX_BODY_BYTES", "-1"),
        ("TA_MAX_IMAGE_BODY_BYTES", "1 MB"),
        ("TA_BODY_TIMEOUT", "0"),
        ("TA_STREAMS_PER_USER", "none"),
    ],
)
def test_bad_value_stops_start_up_and_its_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        load_settings()
