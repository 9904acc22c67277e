"""`teal approvals watch`: calls that wait for the user, as they come."""

from __future__ import annotations

import asyncio

from sk_agents.cli.chat_session import ApprovalPrompt, first_contact
from sk_agents.cli.event_printer import approval_place, print_approval
from sk_agents.cli.options import Exit, ServerAccess
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.server_connection import print_error, silence_client_log, unopened_client
from sk_agents.cli.server_records import waiting_approvals
from sk_agents.cli.terminal import DIM, Keyboard, Screen, print_json
from sk_agents.client import ClientError, PendingApproval, TealClient, TealServerError


def watch_approvals(access: ServerAccess, every: float, *, ask: bool, as_json: bool) -> Exit:
    """Until Ctrl-C. With `ask` the user decides here about each call."""
    silence_client_log()
    try:
        with asyncio.Runner() as runner:
            runner.run(first_contact(access))
            client = runner.run(unopened_client(access).__aenter__())
            try:
                _Watch(runner, client, ask=ask, as_json=as_json).run(every)
            finally:
                runner.run(client.__aexit__(None, None, None))
    except (ClientError, ValueError) as error:
        return print_error(error, access.server)
    except (EOFError, KeyboardInterrupt):
        return Exit.DONE
    return Exit.DONE


class _Watch:
    """`_known` are the calls that were shown and, when they were last looked for, still waited."""

    def __init__(
        self, runner: asyncio.Runner, client: TealClient, *, ask: bool, as_json: bool
    ) -> None:
        self._runner = runner
        self._client = client
        self._ask = ask
        self._as_json = as_json
        self._screen = Screen()
        self._prompt = ApprovalPrompt(self._screen, Keyboard(), may_wait=True)
        self._known: dict[str, PendingApproval] = {}

    def run(self, every: float) -> None:
        if not self._as_json:
            self._screen.line("Waiting for calls that need you. Ctrl-C ends.", DIM)
        while True:
            self._look()
            self._runner.run(asyncio.sleep(every))

    def _look(self) -> None:
        waiting = {one.approval_id: one for one in self._runner.run(self._waiting())}
        for gone in self._known.keys() - waiting.keys():
            self._print_gone(self._known.pop(gone))
        for approval_id, approval in waiting.items():
            if approval_id not in self._known:
                self._known[approval_id] = approval
                self._print_new(approval)
                if self._ask and approval.may_decide is not False:
                    self._decide(approval)

    async def _waiting(self) -> list[PendingApproval]:
        return [one async for one in waiting_approvals(self._client)]

    def _print_new(self, approval: PendingApproval) -> None:
        if self._as_json:
            document = approval.model_dump(mode="json", by_alias=True)
            print_json({"event": "waiting", **document}, on_one_line=True)
            return
        print_approval(self._screen, approval)
        self._screen.line(f"  {approval.approval_id}{approval_place(approval)}", DIM)

    def _print_gone(self, approval: PendingApproval) -> None:
        if self._as_json:
            gone = {"event": "gone", "approval_id": approval.approval_id}
            print_json(gone, on_one_line=True)
        else:
            self._screen.note(f"{one_line(approval.tool_name)} waits no longer")

    def _decide(self, approval: PendingApproval) -> None:
        while True:
            decision = self._prompt.ask(approval)
            if decision is None:
                self._screen.note(f"later: teal approvals approve {approval.approval_id}")
                return
            send = self._client.approve if decision.approved else self._client.reject
            try:
                decided = self._runner.run(send(approval, **decision.verdict))
            except TealServerError as error:
                self._screen.line(f"✗ {one_line(error.detail)} ({error.code})")
                if error.status in {403, 422}:
                    continue
            else:
                word = "approved" if decision.approved else "rejected"
                missing = f", {decided.missing} more needed" if decided.missing else ""
                self._screen.note(f"{word}{missing}")
            self._known.pop(approval.approval_id, None)
            return
