"""What an entry of the manifest is, and the reasons an entry may have for having no test."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One observable behaviour; `reason` says why no test carries it, `None` that one must."""

    behaviour: str
    reason: str | None = None


FLEET = "Stores that many hosts share (PostgreSQL, Redis, DynamoDB) are not built yet."
NOT_OBSERVABLE = "The sentence plans work or explains a choice; nobody can observe it from outside."
