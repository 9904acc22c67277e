"""An MCP server swaps what its tool is between the question about a call and the yes to it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.chaos.broken_builds import START_WITHOUT_DIGEST
from tests.chaos.instances import Instance, Site, until
from tests.chaos.scale import trials
from tests.chaos.swapping import NAME, Definition
from tests.patience import seconds

# Whether the server says so, and whether the operator agrees to the new one before the yes.
SILENTLY, ANNOUNCED, AGREED = "silently", "announced", "agreed to"
TOLD = {SILENTLY: "tool_definition_changed", ANNOUNCED: "There is no tool"}
SWAPS = [
    (way, what)
    for what, way in product(["description", "schema", "hints"], [SILENTLY, ANNOUNCED, AGREED])
]
COUNT = trials(full=50, small=3)


async def withheld(instance: Instance) -> None:
    """Until the instance has seen the new definition."""

    async def look() -> bool | None:
        return bool(await instance.ask("withheld")) or None

    await until(look)


async def swap_once(
    site: Site, instance: Instance, definition: Definition, number: int
) -> str | None:
    """What is wrong after a yes to what the tool was before."""
    name, (way, what) = f"t{number}", SWAPS[number % len(SWAPS)]
    await instance.ask("start", thread_id=name, run_id=name, text="go")
    approval_id = await site.approval_of(name, name)
    definition.change(what, number, announce=way != SILENTLY)
    if way != SILENTLY:
        await withheld(instance)
    if way == AGREED:
        await instance.ask("agree", server=NAME)
    await instance.ask("decide", approval_id=approval_id, approved=True)
    run = await site.settled(name, name)
    [call] = run.calls.values()
    if site.ledger.lines():
        return f"{what} swapped, {way}: it ran"
    if way == AGREED:
        [anew] = run.pending_approvals
        return None if anew.request.approval_id != approval_id else f"{name} waits"
    await instance.ask("agree", server=NAME)
    told = call.finished.result if call.finished is not None else ""
    return None if TOLD[way] in told else f"{what} swapped, {way}: {told}"


async def swapped(site: Site, folder: Path, count: int, *options: str) -> str | None:
    """The first thing that went wrong."""
    definition = Definition(folder)
    instance = await site.start(f"mcp={folder}", *options)
    for number in range(count):
        if problem := await swap_once(site, instance, definition, number):
            return problem
    return None


@pytest.mark.timeout(seconds(600))
async def test_a_definition_swapped_between_question_and_yes_is_never_run(
    site: Site, tmp_path: Path
) -> None:
    """Red with the build that starts what was approved without computing its digest again: see
    the next test."""
    assert await swapped(site, tmp_path, COUNT) is None
    assert site.ledger.lines() == []


@pytest.mark.chaos
async def test_the_experiment_finds_out_a_swap_without_the_digest(
    site: Site, tmp_path: Path
) -> None:
    found = await swapped(site, tmp_path, COUNT, f"broken={START_WITHOUT_DIGEST}")
    assert found == f"description swapped, {AGREED}: it ran"


async def test_a_yes_for_one_server_runs_nothing_at_another_of_its_name(
    site: Site, tmp_path: Path
) -> None:
    """Red with the build whose definitions do not say whose they are."""
    Definition(tmp_path)
    first = await site.start(f"mcp={tmp_path}")
    await first.ask("start", thread_id="t", run_id="t", text="go")
    approval_id = await site.approval_of("t", "t")
    await first.kill()
    second = await site.start(f"mcp={tmp_path}", "server=elsewhere")
    await second.ask("decide", approval_id=approval_id, approved=True)
    [anew] = (await site.settled("t", "t")).pending_approvals
    assert anew.request.approval_id != approval_id
    assert site.ledger.lines() == []
    await second.ask("decide", approval_id=anew.request.approval_id, approved=True)
    await site.settled("t", "t")
    assert len(site.ledger.lines()) == 1
