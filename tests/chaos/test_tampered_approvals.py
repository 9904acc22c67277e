"""What runs is what was shown, whatever is changed in the store or in a tool meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from sk_agents.engine.events import ApprovalDecided, ApprovalRequested
from sk_agents.engine.models import RunStatus
from tests.chaos.broken_builds import START_WITHOUT_DIGEST
from tests.chaos.engine_process import USER
from tests.chaos.instances import Instance, Refused, Site
from tests.chaos.mutations import (
    ASKED_ANEW,
    FAILED,
    MUTATIONS,
    NO_SUCH_TOOL,
    Mutation,
    respelled,
    untouched,
)
from tests.chaos.obedient_model import RICH
from tests.chaos.tampering import opened
from tests.patience import seconds

RAN = "ran"
HARMLESS = {"untouched": Mutation(untouched), "respelled": Mutation(respelled)}
REDEFINED = ["description=writes two lines", "field=bcc", "effect=read_only", "server=elsewhere"]


class Place(NamedTuple):
    """Where a run lies after somebody had it in hand."""

    thread_id: str
    run_id: str


async def asked_about(site: Site, names: list[str]) -> dict[str, ApprovalRequested]:
    """What a person was shown of a run of each name; the process that asked is gone."""
    asker = await site.start()
    for name in names:
        await asker.ask("start", thread_id=name, run_id=name, text="sign:rich")
    requests = {}
    for name in names:
        [approval] = (await site.settled(name, name)).pending_approvals
        requests[name] = approval.request
    await asker.kill()
    return requests


async def became_of(
    site: Site, decider: Instance, request: ApprovalRequested, place: Place, by: str = USER
) -> str:
    """What a yes to the request as it was shown leads to."""
    yes = {"approval_id": request.approval_id, "approved": True, "digest": request.digest}
    try:
        await decider.ask("decide", **yes, user_id=by)
    except Refused as refusal:
        return str(refusal)
    run = await site.settled(place.thread_id, place.run_id)
    [call] = run.calls.values()
    if call.started is not None:
        return RAN
    if run.phase is RunStatus.FAILED:
        return FAILED
    if call.finished is not None:
        is_told = "There is no tool" in call.finished.result
        return NO_SUCH_TOOL if is_told else call.finished.result
    log = await site.store.events_after(place.thread_id, 0)
    decided = [(e.approval_id, e.outcome) for e in log if isinstance(e, ApprovalDecided)]
    [anew] = run.pending_approvals
    is_withdrawn = decided[-1] == (request.approval_id, "withdrawn")
    return ASKED_ANEW if is_withdrawn and anew.request != request else "waits"


async def tampered(
    site: Site, mutations: Mapping[str, Mutation], *options: str
) -> dict[str, tuple[str, list[object]]]:
    """For each mutation what a yes led to, and the arguments of what the ledger saw."""
    numbered = {f"t{number}": name for number, name in enumerate(mutations)}
    requests = await asked_about(site, list(numbered))
    changed = {}
    for thread_id, name in numbered.items():
        with opened(Path(site.url.partition("://")[2]), thread_id) as stored:
            mutations[name].change(stored)
        changed[thread_id] = Place(stored.thread_id, stored.run_id)
    decider = await site.start(*options)
    found = {}
    for thread_id, name in numbered.items():
        request, place = requests[thread_id], changed[thread_id]
        found[name] = await became_of(site, decider, request, place, mutations[name].decided_by)
    return {
        name: (found[name], effects(site, changed[thread_id]))
        for thread_id, name in numbered.items()
    }


def effects(site: Site, place: Place) -> list[object]:
    return [line["arguments"] for line in site.ledger.lines() if line["run_id"] == place.run_id]


def test_there_are_enough_mutations() -> None:
    assert len(MUTATIONS) >= 40


@pytest.mark.timeout(seconds(600))
async def test_nothing_runs_that_was_changed_after_it_was_shown(site: Site) -> None:
    """Red with the build that starts what was approved without computing its digest again: see
    the next test. What is only spelled in another way runs, or nothing would be proved."""
    found = await tampered(site, {**MUTATIONS, **HARMLESS})
    assert {name: found.pop(name) for name in HARMLESS} == dict.fromkeys(HARMLESS, (RAN, [RICH]))
    wrong = {
        name: (outcome, happened)
        for name, (outcome, happened) in found.items()
        if outcome not in MUTATIONS[name].expected or happened
    }
    assert wrong == {}
    assert len(site.ledger.lines()) == len(HARMLESS)


@pytest.mark.chaos
@pytest.mark.timeout(seconds(600))
async def test_the_experiment_finds_out_a_start_without_the_digest(site: Site) -> None:
    found = await tampered(site, MUTATIONS, f"broken={START_WITHOUT_DIGEST}")
    ran = {name for name, (outcome, _) in found.items() if outcome == RAN}
    assert ran >= {name for name, one in MUTATIONS.items() if one.expected == (ASKED_ANEW,)}


async def redefined(site: Site, change: str, *options: str) -> str:
    thread_id = change.replace(" ", "-")
    request = (await asked_about(site, [thread_id]))[thread_id]
    upgraded = await site.start(change, *options)
    return await became_of(site, upgraded, request, Place(thread_id, thread_id))


@pytest.mark.parametrize("change", REDEFINED)
async def test_a_tool_that_was_upgraded_after_it_was_shown_does_not_run(
    site: Site, change: str
) -> None:
    """Red with the build that starts what was approved without computing its digest again: see
    the next test."""
    assert await redefined(site, change) == ASKED_ANEW
    assert site.ledger.lines() == []


@pytest.mark.chaos
@pytest.mark.parametrize("change", REDEFINED)
async def test_the_experiment_finds_out_an_upgrade_without_the_digest(
    site: Site, change: str
) -> None:
    assert await redefined(site, change, f"broken={START_WITHOUT_DIGEST}") == RAN
