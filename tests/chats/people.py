"""People with names, groups and roles: as if the header that lists them were a proof."""

from typing import ClassVar

from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.exceptions import Unauthenticated

Headers = dict[str, str]


def person(name: str, *, groups: str = "", roles: str = "") -> Headers:
    return {"Authorization": f"{name};{groups};{roles}"}


class PeopleAuthorizer(RequestAuthorizer):
    is_immediate: ClassVar[bool] = True

    async def authorize_request(self, auth_header: str) -> Principal:
        name, groups, roles = (*auth_header.split(";"), "", "")[:3]
        if not name:
            raise Unauthenticated
        return Principal(
            name, name.title(), groups=frozenset(groups.split()), roles=frozenset(roles.split())
        )


ADA = person("ada")
BOB = person("bob", groups="finance")
EVE = person("eve", groups="finance sales")
MALLORY = person("mallory", groups="sales", roles="user operator")
