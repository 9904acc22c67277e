"""Secrets are found in whole texts, and in streams wherever these are cut."""

import json
import random
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sk_agents.config.settings import Settings
from sk_agents.redaction import HIDDEN, KINDS, MOST_HELD, Redactor, secret_values

PRIVATE_KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAcanary\nabc+/=\n-----END RSA PRIVATE KEY-----"
)
SECRETS = {
    "a known value": "hunter2canary",
    "a known value with spaces": "correct horse canary",
    "a private key": PRIVATE_KEY,
    "a private key of another kind": PRIVATE_KEY.replace("RSA ", ""),
    "an OpenAI key": "sk-proj-canaryAAAAAAAAAAAAAAAAAAAA",
    "an AWS key": "AKIACANARYCANARY1234",
    "a GitHub token": "ghp_canary0123456789012345678901234567890",
    "a Slack token": "xoxb-123456789012-canary",
    "a signed token": "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjF9canary.c2lnbmF0dXJlMTIz",
    "a bearer token": "Bearer canary.token-of.somebody",
    "a card": "4111 1111 1111 1111",
    "a card with hyphens": "5500-0000-0000-0004",
    "a card of digits": "340000000000009",
    "a card after a word": "card4111111111111111",
    "a card between letters": "cafe4111111111111111",
    "the operator's own": "ACME-424242",
    "an address with a password": "postgresql://teal:canary-9:x@db.example:5432/teal",
    "an address with a password alone": "redis://:canaryabc@[::1]/0",
}
REDACTOR = Redactor.of(["hunter2canary", "correct horse canary"]).for_prose(
    KINDS, [r"ACME-[0-9]{6}"]
)
HARMLESS = [
    "Nothing to hide - not even 12345 or 2026-11-16.",
    "Order 4111111111111112 has no valid check digit.",
    "86067ea239a9a76cf560000000000044 chat-a4111111-1111-1111-1fff-0123456789ab",
    f"int_{'ab12' * 5}4111111111111111 sha256:{'0' * 8}f4111111111111111{'e' * 39}",
    "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    "sk-short, task-force, the bearer of news, a basic idea",
    "correct horse battery, hunter2 and PWD=/srv/ada",
    "日本語 🎉 \u200b text",
    "d692eaeb76342816c392000000000006 is a request, 19d2ef04-4111-4a11-a232-691895237259 a call",
    "http://127.0.0.1:8000/a:b@c, https://ann@example.com, a: b, x:/y, mailto:ann@example.com",
]


def joined(pieces: list[str], redactor: Redactor = REDACTOR) -> str:
    stream = redactor.stream()
    return "".join(stream.feed(piece) for piece in pieces) + stream.end()


@pytest.mark.parametrize("name", SECRETS)
def test_secret_is_found_wherever_a_stream_is_cut(name: str) -> None:
    secret = SECRETS[name]
    for text in (secret, f"before {secret} after", f"({secret})", f"a\n{secret}\nb {secret}."):
        whole = REDACTOR.text(text)
        assert HIDDEN in whole
        assert secret not in whole and "canary" not in whole
        assert joined(list(text)) == whole
        for at in range(len(text) + 1):
            assert joined([text[:at], text[at:]]) == whole


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert REDACTOR.text(text) == text
    assert joined(list(text)) == text


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_pieces_joined_are_the_redacted_text(data: st.DataObject) -> None:
    words = [*SECRETS.values(), *HARMLESS, " ", "\n", "4111 ", "-----BEGIN "]
    text = " ".join(data.draw(st.lists(st.sampled_from(words), max_size=6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert joined(pieces) == REDACTOR.text(text)


def test_stream_holds_back_a_word_and_not_a_page() -> None:
    stream = Redactor.of().stream()
    assert stream.feed("The quick brown fox jum") == "The quick brown fox "
    assert stream.feed("ps.") == ""
    assert stream.feed(" Over") == "jumps. "


def test_long_text_without_a_gap_is_let_through() -> None:
    stream = Redactor.of().stream()
    shown = sum(len(stream.feed("x" * 1000)) for _ in range(100))
    assert shown > 100_000 - 2 * MOST_HELD
    assert shown + len(stream.end()) == 100_000


@pytest.mark.parametrize("secret", ["known-value-77aa", "sk-" + "a1" * 12])
@pytest.mark.parametrize("ahead", range(0, 40, 3))
def test_secret_in_a_text_too_long_to_be_held_back_is_found(secret: str, ahead: int) -> None:
    text = f"{'x' * (MOST_HELD - ahead)}/{secret}/rest"
    stream = Redactor.of(["known-value-77aa"]).stream()
    pieces = [stream.feed(text[:-100]), *(stream.feed(letter) for letter in text[-100:])]
    assert "".join([*pieces, stream.end()]) == text.replace(secret, HIDDEN)


@pytest.mark.parametrize("size", [100, 10_000])
def test_nothing_of_a_private_key_longer_than_what_is_held_back_is_shown(size: int) -> None:
    body = "\n".join("MIIE" + "q9" * 30 for _ in range(2 * MOST_HELD // 64))
    text = f"see -----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY----- and more"
    stream = Redactor.of().stream()
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, stream.end()]) == f"see {HIDDEN} and more"


def test_private_key_that_does_not_end_is_hidden_to_the_end() -> None:
    text = f"see {PRIVATE_KEY[:60]}"
    assert REDACTOR.text(text) == f"see {HIDDEN}"
    assert joined(list(text)) == f"see {HIDDEN}"


def test_only_the_chosen_kinds_are_hidden() -> None:
    cards = Redactor.of(["hunter2canary"]).for_prose(["cards"])
    text = f"{SECRETS['a card']} {SECRETS['an OpenAI key']} hunter2canary"
    assert cards.text(text) == f"{HIDDEN} {SECRETS['an OpenAI key']} {HIDDEN}"


def test_every_text_of_a_value_is_redacted() -> None:
    value = {"a": ["hunter2canary", 7, None, {"hunter2canary": True}]}
    assert REDACTOR.value(value) == {"a": [HIDDEN, 7, None, {HIDDEN: True}]}


def test_working_directory_is_no_secret_and_each_of_several_keys_is() -> None:
    environ = {
        "PWD": "/srv/ada",
        "OLDPWD": "/srv/bob",
        "DB_PWD": "canary-pwd",
        "TA_ENCRYPTION_KEYS": "canary-one,canary-two",
        "TA_STORE": "postgresql://teal:canary%2Fthree@db/teal",
        "TEST_URL": "postgresql://postgres:postgres@localhost",
        "OTHER_URL": "http://[broken:x@y",
    }
    found = secret_values(Settings(), environ)
    assert {"canary-pwd", "canary-one", "canary-two", "canary/three"} <= found
    assert not found & {"/srv/ada", "/srv/bob", "postgres"}


def test_work_grows_with_the_text_and_not_with_its_square() -> None:
    chance = random.Random(3)
    text = "".join(chance.choice("ab- 4\n") for _ in range(20_000))
    assert joined([text[at : at + 7] for at in range(0, len(text), 7)]) == REDACTOR.text(text)


@pytest.mark.parametrize("secret", ['pä"ss\\wörd-9', "two\nlines-9", "a+b/c=d&e-9"])
def test_known_value_is_found_as_json_python_and_addresses_spell_it(secret: str) -> None:
    redactor = Redactor.of([secret])
    inner = json.dumps({"v": secret})
    for text in (
        json.dumps({"v": secret}),
        json.dumps({"v": secret}, ensure_ascii=False),
        json.dumps({"in": inner}),
        repr({"v": secret}),
        f"https://example.com/?v={quote(secret, safe='')}",
        f"https://example.com/{quote(secret)}",
    ):
        hidden = redactor.text(text)
        assert HIDDEN in hidden and "9" not in hidden
        assert joined(list(text), redactor) == hidden


@pytest.mark.parametrize("name", ["db_password", "PGPASSWORD", "SSH_PASSPHRASE", "DB_PASSWD"])
def test_secret_under_another_usual_name_is_known(name: str) -> None:
    assert "canary-value" in secret_values(Settings(), {name: "canary-value"})


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_placeholder_stays_whole_where_a_word_of_it_is_a_known_value(size: int) -> None:
    text = "it is secret, or [secret-3f9a61c2], or [[secret-3f9a61c2] of [secret"
    stream = Redactor.of(["secret"]).for_prose(vault_tools=("*",)).stream()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    shown = "".join([*map(stream.feed, pieces), stream.end()])
    assert shown == (f"it is {HIDDEN}, or [secret-3f9a61c2], or [[secret-3f9a61c2] of [{HIDDEN}")
