"""Who has which role, and what one setting says about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sk_agents.authorization.access_keys import KeysFile
from sk_agents.authorization.key_authorizer import KeyAuthorizer
from sk_agents.authorization.request_authorizer import Principal
from sk_agents.authorization.roles import (
    EVERY_ROLE,
    MAX_NAME,
    RoleMap,
    RolesFile,
    memberships,
    read_role_map,
)
from sk_agents.config.settings import Settings
from sk_agents.engine.models import audience_key
from sk_agents.exceptions import AuthorizerUnavailable, ConfigurationError, MissingRole
from sk_agents.http.caller import USERS, Caller, CallerCheck, require_role
from sk_agents.testing import HeaderAuthorizer
from tests.chats.people import PeopleAuthorizer, person
from tests.chats.serving import serving

ADA = Principal("ada", groups=frozenset({"staff"}), roles=frozenset({"Teal.Approver"}))


def test_without_a_mapping_everyone_is_a_user_and_a_role_of_our_name_is_ours() -> None:
    roles = read_role_map(None)
    assert roles.roles_of(ADA) == {"user"}
    named = Principal("olga", roles=frozenset({"operator", "approver", "admin"}))
    assert roles.roles_of(named) == EVERY_ROLE


@pytest.mark.parametrize(
    "mapping",
    [
        '{"approver": {"roles": ["Teal.Approver"]}}',
        '{"approver": {"groups": ["other", "staff"]}}',
        '{"approver": {"users": ["ada"]}}',
    ],
)
def test_role_is_given_by_a_role_a_group_or_a_name(mapping: str) -> None:
    roles = read_role_map(mapping)
    assert roles.roles_of(ADA) == {"user", "approver"}
    assert roles.roles_of(Principal("eve", roles=EVERY_ROLE)) == {"user"}


def test_mapping_is_described_for_the_audit_and_none_is_not() -> None:
    assert RoleMap().described() == {}
    described = read_role_map(
        '{"operator": {"groups": ["ops"], "users": ["olga", "ben"]}}'
    ).described()
    assert described["operator"] == "groups: ops; users: ben, olga"


def test_mapping_of_users_keeps_the_others_out() -> None:
    roles = read_role_map('{"user": {"groups": ["staff"]}}')
    assert roles.roles_of(ADA) == {"user"}
    assert roles.roles_of(Principal("eve")) == frozenset()


def test_mapping_is_read_from_a_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "roles.yaml"
    path.write_text("operator:\n  users: [ada]\napprover:\n  groups: [staff]\n")
    assert read_role_map(str(path)).roles_of(ADA) == EVERY_ROLE


def test_file_that_others_can_change_gives_no_roles(tmp_path: Path) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text("operator: {users: [ada]}\n")
    file.chmod(0o666)
    with pytest.raises(ConfigurationError, match="TA_ROLES: every user of this machine"):
        read_role_map(str(file))
    file.chmod(0o644)
    assert read_role_map(str(file)).roles_of(Principal("ada")) == {"user", "operator"}


def test_file_that_was_changed_counts_at_once(tmp_path: Path) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text("operator: {users: [ada]}\n")
    roles = read_role_map(str(file))
    assert roles.roles_of(Principal("ada")) == {"user", "operator"}
    new = tmp_path / "new.yaml"
    new.write_text("operator: {users: [eve]}\n")
    new.replace(file)
    assert roles.described() == {"operator": "users: eve"}
    assert roles.roles_of(Principal("ada")) == {"user"}
    assert roles.roles_of(Principal("eve")) == {"user", "operator"}


async def test_file_that_cannot_be_read_is_no_authorizer_that_can_be_had(tmp_path: Path) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text("operator: {users: [ada]}\n")
    roles = RolesFile(file)
    await roles.ping()
    file.unlink()
    with pytest.raises(AuthorizerUnavailable, match=r"TA_ROLES: .*roles\.yaml: No such file"):
        await roles.ping()


def test_groups_and_roles_count_up_to_the_longest_name_that_a_rule_may_have() -> None:
    named = frozenset({"", "x", "y" * MAX_NAME, "z" * (MAX_NAME + 1), "a\nb"})
    found = memberships(Principal("ada", groups=named, roles=named), frozenset())
    kept = ("x", "y" * MAX_NAME)
    assert found == {
        audience_key("user", "ada"),
        *(audience_key("group", name) for name in kept),
        *(audience_key("role", name) for name in kept),
    }


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda file: file.write_text("operator: {user: [ada]}\n"), "operator.user"),
        (lambda file: file.write_text(""), "TA_ROLES"),
        (lambda file: file.chmod(0o666), "every user of this machine"),
        (lambda file: file.unlink(), "No such file"),
    ],
)
async def test_file_that_was_spoiled_lets_nobody_in_until_it_is_mended(
    tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text("operator: {users: [ada]}\n")
    async with serving(tmp_path, authorizer=PeopleAuthorizer(), roles=str(file)) as served:
        assert (await served.client.get("/sessions", headers=person("ada"))).status_code == 200
        spoil(file)
        for path in ("/sessions", "/chats"):
            refused = await served.client.get(path, headers=person("ada"))
            assert (refused.status_code, refused.json()["code"]) == (503, "authorizer_unavailable")
        assert (await served.client.get("/health/ready")).status_code == 503
        file.write_text("operator: {users: [bob]}\n")
        file.chmod(0o600)
        refused = await served.client.get("/sessions", headers=person("ada"))
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_role")
        assert (await served.client.get("/health/ready")).status_code == 200


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ('{"admin": {}}', "admin"),
        ('{"approver": {"group": ["x"]}}', "approver.group"),
        ('{"approver": {"groups": "finance"}}', "approver.groups"),
        ('{"approver": {"groups": [""]}}', "approver.groups"),
        ("/nowhere/roles.yaml", "No such file"),
    ],
)
def test_mapping_that_cannot_be_used_stops_the_start(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        read_role_map(text)


def test_person_is_in_the_audiences_of_their_roles_groups_and_name() -> None:
    found = memberships(ADA, frozenset({"user", "approver"}))
    assert found == {
        "role:user", "role:approver", "role:Teal.Approver", "group:staff", "user:ada",
    }  # fmt: skip


def test_token_cannot_name_itself_one_of_our_roles() -> None:
    claims_it = Principal("eve", roles=EVERY_ROLE)
    assert memberships(claims_it, frozenset({"user"})) == {"role:user", "user:eve"}


def test_names_that_no_store_takes_are_left_out() -> None:
    odd = frozenset({"\ud800", "a\x00b", "x" * 257, "", "fine name"})
    found = memberships(Principal("eve", groups=odd, roles=odd), frozenset())
    assert found == {"role:fine name", "group:fine name", "user:eve"}


def test_name_of_a_caller_can_be_stored_and_shown() -> None:
    odd = Caller(Principal("eve", name="E\ud800v\x1b[2Je\u202e " + "x" * 999))
    assert odd.name is not None and odd.name.startswith("Ev[2Je x") and len(odd.name) == 256
    assert Caller(Principal("eve", name="\x00 ")).name is None


async def test_caller_who_proves_nothing_has_every_role_and_one_who_does_has_theirs() -> None:
    believed = await CallerCheck(HeaderAuthorizer()).identify([(b"authorization", b"ada")])
    proven = await CallerCheck(PeopleAuthorizer()).identify(
        [(b"authorization", b"ada;finance;operator")]
    )
    assert believed.roles == EVERY_ROLE
    assert proven.roles == {"user", "operator"} and proven.name == "Ada"


def test_missing_role_is_named() -> None:
    require_role(Caller(ADA), USERS)
    with pytest.raises(MissingRole, match="role operator or approver"):
        require_role(Caller(ADA), ("operator", "approver"))


async def test_access_key_has_the_roles_it_was_made_with(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    _, text = KeysFile(path).add("bob", roles=["approver", "approver", "Treasurer"])
    _, plain = KeysFile(path).add("bob")
    authorizer = KeyAuthorizer(Settings(keys_file=path))
    found = await authorizer.authorize_request(f"Bearer {text}")
    assert found.user_id == "bob" and found.roles == {"approver", "Treasurer"}
    assert (await authorizer.authorize_request(f"Bearer {plain}")).roles == frozenset()
