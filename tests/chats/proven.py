"""Callers who are who they say they are."""

from typing import ClassVar

from sk_agents.testing import HeaderAuthorizer

ADA, BOB = {"Authorization": "ada_lovelace"}, {"Authorization": "bob"}


class ProvenAuthorizer(HeaderAuthorizer):
    """As if the header were a proof."""

    insecure: ClassVar[bool] = False
