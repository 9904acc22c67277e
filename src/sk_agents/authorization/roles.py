"""The server's own roles, and the one setting that says who has them.

`user` talks to agents. `approver` decides what waits for them. `operator` sees how the server is,
and no content. A person may have several. Rules of agent files name these roles and, beside them,
any other role that a token or an access key has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from unicodedata import category

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sk_agents.authorization.request_authorizer import Principal
from sk_agents.config.strict_yaml import read_yaml
from sk_agents.engine.models import audience_key
from sk_agents.exceptions import AuthorizerUnavailable, ConfigurationError
from sk_agents.private_files import changeable_by_others, file_stamp

Role = Literal["user", "approver", "operator"]
MAX_NAME = 256
# Control characters and lone surrogates.
UNSTORABLE = {"Cc", "Cs"}
EVERY_ROLE: frozenset[Role] = frozenset(get_args(Role))

_Names = Annotated[
    frozenset[Annotated[str, Field(min_length=1, max_length=MAX_NAME)]], Field(strict=False)
]


class RoleMembers(BaseModel):
    """Who has a role: one of these is enough. `roles` are those of tokens and access keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    roles: _Names = frozenset()
    groups: _Names = frozenset()
    users: _Names = frozenset()

    def include(self, principal: Principal) -> bool:
        return (
            principal.user_id in self.users
            or not self.roles.isdisjoint(principal.roles)
            or not self.groups.isdisjoint(principal.groups)
        )


class RoleMap:
    """Without a mapping, a role of a token or key that has the name of ours is ours."""

    def __init__(self, members: Mapping[Role, RoleMembers] | None = None) -> None:
        self._is_default = members is None
        if members is None:
            members = {
                "approver": RoleMembers(roles=frozenset({"approver"})),
                "operator": RoleMembers(roles=frozenset({"operator"})),
            }
        self._members = dict(members)

    def described(self) -> dict[str, str]:
        """Who has each role that the operator's mapping names, for the audit."""
        if self._is_default:
            return {}
        return {
            role: "; ".join(
                f"{kind}: {', '.join(sorted(names))}"
                for kind in ("roles", "groups", "users")
                if (names := getattr(members, kind))
            )
            for role, members in self._members.items()
        }

    def roles_of(self, principal: Principal) -> frozenset[Role]:
        """Everyone is a `user`, unless the mapping says who is one."""
        found = {role for role, members in self._members.items() if members.include(principal)}
        return frozenset(found if "user" in self._members else found | {"user"})


class RolesFile(RoleMap):
    """The mapping as its file has it now: it is read again when it has changed. A person who was
    taken out of it has no role from the next request on.

    Without a mapping that can be read nobody is let in: an operator who took a person out, and made
    a mistake with it, must not be left with the mapping of before.
    """

    def __init__(self, path: Path) -> None:
        super().__init__({})
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._refresh()

    def described(self) -> dict[str, str]:
        """Raises ConfigurationError: the file cannot be used."""
        self._refresh()
        return super().described()

    def roles_of(self, principal: Principal) -> frozenset[Role]:
        """Raises ConfigurationError: the file cannot be used."""
        self._refresh()
        return super().roles_of(principal)

    async def ping(self) -> None:
        try:
            self._refresh()
        except ConfigurationError as error:
            raise AuthorizerUnavailable(str(error)) from error

    def _refresh(self) -> None:
        try:
            stamp = file_stamp(self._path)
            if stamp == self._stamp:
                return
            document = read_yaml(self._path)
            part = changeable_by_others(self._path.resolve())
        except OSError as error:
            raise ConfigurationError(f"TA_ROLES: {self._path}: {error.strerror}") from error
        if part is not None:
            raise ConfigurationError(
                f"TA_ROLES: every user of this machine can change '{part}': chmod o-w it"
            )
        self._members = _members_in(document)
        self._stamp = stamp


def memberships(principal: Principal, roles: frozenset[Role]) -> frozenset[str]:
    """The keys of all audiences that this person belongs to.

    Of our own roles only those that the mapping gives count: a token cannot name itself one.
    """
    foreign = filter(_can_be_looked_up, principal.roles - EVERY_ROLE)
    groups = filter(_can_be_looked_up, principal.groups)
    return frozenset(
        (
            *(audience_key("role", role) for role in (*roles, *foreign)),
            *(audience_key("group", group) for group in groups),
            audience_key("user", principal.user_id),
        )
    )


def _can_be_looked_up(name: str) -> bool:
    """No rule can name another one, and a store refuses some of them."""
    return 0 < len(name) <= MAX_NAME and UNSTORABLE.isdisjoint(map(category, name))


def read_role_map(setting: str | None) -> RoleMap:
    """From `TA_ROLES`: a JSON object, or the path of a YAML file.

    Raises:
        ConfigurationError: it cannot be read, or names a role or a key that there is not.
    """
    if setting is None:
        return RoleMap()
    setting = setting.strip()
    if not setting.startswith("{"):
        return RolesFile(Path(setting).expanduser())
    try:
        document = orjson.loads(setting)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"TA_ROLES: not valid JSON, at {error.pos}") from None
    return RoleMap(_members_in(document))


def _members_in(document: Any) -> dict[Role, RoleMembers]:
    try:
        return _MAPPING.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise ConfigurationError(f"TA_ROLES: {where or 'it'}: {first['msg']}") from None


_MAPPING: TypeAdapter[dict[Role, RoleMembers]] = TypeAdapter(dict[Role, RoleMembers])
