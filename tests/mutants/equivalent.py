"""Mutants that make no difference, each with the reason why none of its tests can notice it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.operators import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`line` is the mutated line without its indentation; `text` what is put there, if only that
    one of the operator's mutants of the line makes no difference."""

    module: str
    line: str
    operator: str
    reason: str
    text: str | None = None

    def is_of(self, mutant: Mutant, source: str) -> bool:
        return (
            (self.module, self.operator) == (mutant.module, mutant.operator)
            and self.line == mutant.place(source)
            and self.text in (None, mutant.replacement)
        )


ENDS_ANYWAY = "the caller that gets nobody is refused with the same answer one step later"
SHORTCUT = "it only saves work: what follows comes to the same without it"

EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "engine.log.commits",
        "elif epoch > head.epoch and owner is not None and active is not None:",
        "drop operand",
        "a thread that has an owner and a run is running before the commit too",
        "(owner is not None and active is not None)",
    ),
    Equivalent(
        "engine.log.commits",
        "continue",
        "drop statement",
        SHORTCUT,
    ),
    Equivalent(
        "engine.run.recovery",
        "if not known.head.runnable or known.head.epoch != head.epoch:",
        "drop operand",
        "what another instance has claimed since cannot be claimed",
        "(not known.head.runnable)",
    ),
    Equivalent(
        "engine.log.state",
        "if self.calls and self.phase is RunStatus.RUNNING and not self.is_stopping:",
        "drop operand",
        "a run that has ended has a result for each call, and one that waits its turn has none",
        "(self.calls and (not self.is_stopping))",
    ),
    Equivalent(
        "engine.calls.decisions",
        "for (command, entry), (*_, approval) in zip(asked, found, strict=True):",
        "flip truth",
        "one was found for each that was asked for",
    ),
    Equivalent(
        "engine.calls.decisions",
        "with lend(known, own_header(known, asked[0][0])):",
        "shift constant",
        "the decisions of one request are of one caller",
        "(-1)",
    ),
    Equivalent(
        "engine.calls.decisions",
        "if vote is not None and vote.idempotency_key == command.idempotency_key:",
        "drop operand",
        "a voter's decision has the key of the vote that it was made with",
        "(vote is not None)",
    ),
    *(
        Equivalent(
            "engine.calls.decisions",
            "if first.edited_arguments is None or edited is None or first.edited_arguments == "
            "edited:",
            "drop operand",
            "it is only asked where both are edited or neither is",
            f"({operand} is None or first.edited_arguments == edited)",
        )
        for operand in ("edited", "first.edited_arguments")
    ),
    Equivalent(
        "engine.run.lifecycle",
        "return Accepted(known.head.thread_id, run_id, after=0, repeated=True)",
        "shift constant",
        "no event has the number 0",
        "(-1)",
    ),
    *(
        Equivalent(
            "engine.run.lifecycle",
            line,
            "shift constant",
            "what stands before a run's first event is not given to its readers",
            "(2)",
        )
        for line in (
            "return Accepted(known.head.thread_id, command.run_id, after=guard.next_seq - 1)",
            "thread_id, after = known.head.thread_id, guard.next_seq - 1",
        )
    ),
    Equivalent(
        "engine.run.driver",
        "if run.calls and self._is_rejected:",
        "drop operand",
        SHORTCUT,
        "(self._is_rejected)",
    ),
    Equivalent(
        "engine.run.lifecycle",
        "if call.waits and call.approval is not None:",
        "drop operand",
        "a call that waits has an approval; the other operand is for the type checker",
        "(call.waits)",
    ),
    Equivalent(
        "engine.calls.runner",
        "while call.waits and call.approval is not None:",
        "drop operand",
        "a call that waits has an approval; the other operand is for the type checker",
        "(call.waits)",
    ),
    Equivalent(
        "engine.run.lifecycle",
        "if run.status is RunStatus.WAITING and not known.state.queue:",
        "drop operand",
        "a run at work has a live owner, and then the commit is refused; or none, and may be ended",
        "(not known.state.queue)",
    ),
    *(
        Equivalent(
            "engine.calls.reviews",
            '"expires_at": clock.now() + timedelta(seconds=review.lifetime or 0),',
            operator,
            "a review that was asked for has a lifetime; the other operand is for the type checker",
            text,
        )
        for operator, text in (("drop operand", "(review.lifetime)"), ("shift constant", None))
    ),
    Equivalent(
        "engine.calls.runner",
        'if context.agent.on_reject == "cancel" and any(map(_is_refusal, next_steps)):',
        "drop operand",
        "the others take their step right after, in a commit of their own",
        "(any(map(_is_refusal, next_steps)))",
    ),
    Equivalent(
        "engine.calls.runner",
        "return isinstance(one[1], steps.Finish) and (one[1].outcome, one[1].by) == "
        '("refused", "human")',
        "drop operand",
        "the others take their step right after, in a commit of their own",
        "(isinstance(one[1], steps.Finish))",
    ),
    Equivalent(
        "engine.calls.runner",
        "if call.proposal.call_id not in self.running and not call.waits",
        "drop operand",
        SHORTCUT,
        "(call.proposal.call_id not in self.running)",
    ),
    Equivalent(
        "engine.calls.runner",
        "self.hands_over = False",
        "drop statement",
        "each `advance` sets it, and it is read after one",
    ),
    Equivalent(
        "engine.run.driver",
        "if not self._calls.running and self.run.pending_approvals:",
        "drop operand",
        "an open call that does not run and has no step waits for a person",
        "(not self._calls.running)",
    ),
    Equivalent(
        "engine.run.driver",
        'raise AssertionError("the pauses have no end")',
        "drop raise",
        "for the type checker: the pauses have no end",
    ),
    Equivalent(
        "engine.services",
        'raise AssertionError("the pauses have no end")',
        "drop raise",
        "for the type checker: the pauses have no end",
    ),
    Equivalent(
        "engine.run.drivers",
        'run = known.state.runs.get(known.state.active_run or "")',
        "drop operand",
        "no run is called None, nor by an empty name",
    ),
    Equivalent(
        "engine.run.recovery",
        'run = known.state.run(known.state.active_run or "")',
        "drop operand",
        "only runs that are active come here; the other operand is for the type checker",
    ),
    Equivalent(
        "engine.run.conversation",
        "if isinstance(at, int) and -len(self.now) <= at < 0:",
        "shift boundary",
        SHORTCUT,
        "-len(self.now) < at < 0",
    ),
    Equivalent(
        "engine.run.rounds",
        "elif self._prompt_tokens > agent.context_window.budget:",
        "shift boundary",
        "`cut_to_fit` returns what just fits as it is",
    ),
    Equivalent(
        "engine.calls.runner",
        "if any(isinstance(event, ApprovalRequested) for event in events):",
        "negate",
        "it only says where a test may end the process",
    ),
    Equivalent(
        "engine.run.lease_keeper",
        "self._ticked = 0.0",
        "drop statement",
        "the first tick sets it before it is read",
    ),
    Equivalent(
        "engine.run.rounds",
        "self._prompt_tokens = 0",
        "drop statement",
        "the prompt sets it before it is read",
    ),
    Equivalent(
        "engine.run.rounds",
        "self._prompt_tokens = 0",
        "shift constant",
        "the prompt sets it before it is read",
    ),
    Equivalent(
        "engine.reading.watch",
        "self._found = (False, False)",
        "flip truth",
        "the first look replaces it before it is read",
    ),
    Equivalent(
        "engine.reading.watch",
        "if self._run_id is not None and not had_events and not was_live:",
        "drop operand",
        SHORTCUT,
        "(self._run_id is not None and (not had_events))",
    ),
    Equivalent(
        "engine.reading.watch",
        "if self._times_asked < ASKS and position.incarnation is not None:",
        "drop operand",
        "it is known once the reading has begun; for the type checker",
        "(self._times_asked < ASKS)",
    ),
    Equivalent(
        "engine.reading.watch",
        "if left <= 0:",
        "shift boundary",
        "where just nothing is left it looks once more",
    ),
    Equivalent(
        "engine.reading.watch",
        "await services.store.events_after(thread_id, known.state.next_seq - 1, 1)",
        "shift constant",
        "what it finds is not looked at, only whether the log can be read",
        "(2)",
    ),
    Equivalent(
        "engine.reading.live_relay",
        "if due <= loop.time():",
        "shift boundary",
        "what is due now is asked for in the loop's next turn",
    ),
    *(
        Equivalent(
            "engine.calls.decisions",
            line,
            "drop operand",
            "a question about an unknown outcome has choices; for the type checker",
            "(request.choices)",
        )
        for line in (
            'if kind == "outcome_unknown" and command.choice not in (request.choices or ()):',
            'choices = ", ".join(request.choices or ())',
        )
    ),
    Equivalent(
        "engine.reading.live",
        "if self.length - offset <= MOST_CHARACTERS:",
        "swap arithmetic",
        SHORTCUT,
    ),
    Equivalent(
        "engine.reading.live",
        "if self.length - offset <= MOST_CHARACTERS:",
        "shift boundary",
        SHORTCUT,
    ),
    Equivalent(
        "engine.reading.live",
        "left, count, offset = lengths.get(key, 0), 0, 0",
        "shift constant",
        "a chunk without a character, given once more, changes no text",
        "(-1)",
    ),
    Equivalent(
        "engine.reading.live",
        "self.next_seq = 0",
        "shift constant",
        "the log of a run that is driven has an event, and so a larger number",
    ),
    Equivalent(
        "http.caller",
        "raise Unauthenticated from None",
        "drop raise",
        ENDS_ANYWAY,
    ),
    Equivalent(
        "http.caller",
        'if named is None and connection.scope["query_string"]:',
        "drop operand",
        SHORTCUT,
        "(named is None)",
    ),
    Equivalent(
        "authorization.access_keys",
        "return key if key is not None and is_right and not key.is_over(now) else None",
        "drop operand",
        "no text is right for a key that there is not",
        "(is_right and (not key.is_over(now)))",
    ),
    Equivalent(
        "authorization.access_keys",
        "return",
        "drop statement",
        SHORTCUT,
    ),
    Equivalent(
        "authorization.access_keys",
        "self._stamp = stamp",
        "drop statement",
        SHORTCUT,
    ),
    Equivalent(
        "authorization.access_keys",
        "first = error.errors(include_url=False, include_input=False)[0]",
        "flip truth",
        "what is left out is not read",
    ),
    Equivalent(
        "authorization.access_keys",
        "first = error.errors(include_url=False, include_input=False)[0]",
        "shift constant",
        "of several problems the last is as good to name as the first",
        "(-1)",
    ),
    *(
        Equivalent("authorization.roles", line, "drop statement", SHORTCUT)
        for line in ("return", "self._stamp = stamp")
    ),
    Equivalent(
        "authorization.roles",
        "first = error.errors(include_url=False, include_input=False)[0]",
        "flip truth",
        "what is left out is not read",
    ),
    Equivalent(
        "authorization.roles",
        "first = error.errors(include_url=False, include_input=False)[0]",
        "shift constant",
        "of several problems the last is as good to name as the first",
        "(-1)",
    ),
    Equivalent(
        "authorization.token_authorizer",
        "if known is not None and self._now() < known[1]:",
        "shift boundary",
        "at that instant it is verified once more, to the same end",
    ),
    Equivalent(
        "authorization.token_authorizer",
        "or not 0 < len(key_id) <= MAX_KEY_ID_LENGTH",
        "shift boundary",
        "a key without a name is refused one step later, as unknown",
        "0 <= len(key_id) <= MAX_KEY_ID_LENGTH",
    ),
    Equivalent(
        "authorization.token_authorizer",
        "or not 0 < len(key_id) <= MAX_KEY_ID_LENGTH",
        "shift constant",
        "a key without a name is refused one step later, as unknown",
        "(-1)",
    ),
    Equivalent(
        "audit.verification",
        "if last is None or checkpoint.at > last.at:",
        "shift boundary",
        "of two that were made at one time either is the last",
    ),
    Equivalent(
        "audit.verification",
        "async for page in pages_of(self.store, thread, after=self.read.get(thread_id, 0)):",
        "shift constant",
        "no event has the number 0",
        "(-1)",
    ),
    Equivalent(
        "spending.limits",
        "if amounts.cost is not None and amounts.currency is not None:",
        "swap and/or",
        "an amount of money has both, any other neither",
    ),
    Equivalent(
        "spending.limits",
        "if amounts.cost is not None and amounts.currency is not None:",
        "drop operand",
        "an amount of money has both, any other neither",
    ),
    Equivalent(
        "spending.allowances",
        "if block.left < wanted and not block.is_used_up:",
        "shift boundary",
        SHORTCUT,
    ),
    Equivalent(
        "spending.allowances",
        "while amount > 0:",
        "shift constant",
        "to count nothing changes nothing",
        "(-1)",
    ),
    Equivalent(
        "spending.budgets",
        "counted = self._totals.get((spender.run_id, limit.unit), 0)",
        "shift constant",
        "a run has not used less than nothing",
        "(-1)",
    ),
    *(
        Equivalent(
            "spending.budgets",
            line,
            "flip truth",
            "the store answers with as many sums as it is asked for",
            "False",
        )
        for line in (
            "for advance, spent in zip(asked, sums, strict=True):",
            "for advance, total in zip(advances, sums, strict=True):",
        )
    ),
    Equivalent(
        "spending.budgets",
        "self._totals[spender.run_id, limit.unit] = max(0, self.of(spender, limit) + amount)",
        "shift constant",
        "a run has not used less than nothing",
        "(-1)",
    ),
    Equivalent(
        "spending.budgets",
        "self._returning.cancel()",
        "drop statement",
        "what it would give back is given back right after",
    ),
    Equivalent(
        "spending.budgets",
        'whose = (agent,) if limit.is_own and limit.scope == "user" else ()',
        "drop operand",
        "no agent has a budget of an hour of its own",
        "(limit.is_own)",
    ),
    Equivalent(
        "spending.budgets",
        "return {key: (await self._store.count([Count(key, 0, limit.ttl)]))[0]}",
        "shift constant",
        "one counter is asked for, so the last sum is the first",
        "(-1)",
    ),
    *(
        Equivalent(
            "spending.budgets",
            "if advance.lent or advance.left <= 0:",
            operator,
            "it is looked at once more before it is given back",
            text,
        )
        for operator, text in (
            ("drop operand", None),
            ("swap and/or", None),
            ("shift boundary", None),
            ("shift constant", "(-1)"),
        )
    ),
    *(
        Equivalent(
            "spending.budgets",
            "self._tell_later([(one, -one.leave()) for one in idle "
            "if not one.lent and one.left > 0])",
            operator,
            "the store may be told that nothing is given back",
            text,
        )
        for operator, text in (("shift boundary", None), ("shift constant", "(-1)"))
    ),
    Equivalent(
        "spending.budgets",
        "self._tell_later([(one, -one.leave()) for one in idle if not one.lent and one.left > 0])",
        "drop operand",
        "what could not be charged may be charged now as well as with the next call",
        "(not one.lent)",
    ),
    Equivalent(
        "spending.budgets",
        "of_others = [(advance.limit, advance.seen or 0) for advance in limits.advances]",
        "shift constant",
        "a share of a budget is more than nothing",
        "(-1)",
    ),
    Equivalent(
        "spending.budgets",
        "if not self._hour_ends_at - HOUR <= now < self._hour_ends_at or self._is_full:",
        "shift boundary",
        "at the first instant of an hour what is known is looked up once more",
        "self._hour_ends_at - HOUR < now < self._hour_ends_at",
    ),
    Equivalent(
        "spending.budgets",
        "return len(self._limits) > MAX_SPENDERS",
        "shift boundary",
        "what is kept in memory is bounded as well by one less",
    ),
    Equivalent(
        "spending.budgets",
        "def _exceeded(self, limit: Limit, spent: int, wanted: int = 0) -> BudgetExceeded:",
        "shift constant",
        "it is left out where all is spent, and then not looked at",
    ),
    *(
        Equivalent(
            "spending.advances",
            "return bool(self.lent or self.left or self.coming)",
            "drop operand",
            "what is under way is settled with the advance that it was lent from, kept or not",
            text,
        )
        for text in ("(self.left or self.coming)", "(self.lent or self.left)")
    ),
    Equivalent(
        "spending.advances",
        "if self.left >= 0:",
        "shift boundary",
        "where just nothing is left, nothing is missing",
    ),
    Equivalent(
        "spending.advances",
        "if spent > amount:",
        "shift boundary",
        "a call that has spent what it was lent gives nothing back either way",
    ),
    Equivalent(
        "spending.allowances",
        "self._size = max(1, most // BLOCKS)",
        "shift constant",
        "what is missing is one at least, and is taken if a block is smaller",
        "(0)",
    ),
    *(
        Equivalent("spending.allowances", line, operator, SHORTCUT, text)
        for line, operator, text in (
            ("if block.left > 0:", "shift constant", "(1)"),
            ("if block.left < wanted and not block.is_used_up:", "drop operand", None),
            ("if block.left < wanted and not block.is_used_up:", "swap and/or", None),
        )
    ),
    Equivalent(
        "spending.allowances",
        'key, ttl = f"{self._name}\\t{window}\\t{user_id}", 2.0 * self._seconds',
        "shift constant",
        "the counter outlives its window either way",
    ),
    *(
        Equivalent(
            "spending.allowances",
            "amount = max(0, min(amount - 1, self._most - full.sum))",
            operator,
            "the rest is less than what did not fit",
            text,
        )
        for operator, text in (("swap arithmetic", "(amount + 1)"), ("shift constant", "(0)"))
    ),
    Equivalent(
        "spending.advances",
        "if self.left >= 0:",
        "shift constant",
        "where just nothing is left, nothing is missing",
        "(1)",
    ),
    Equivalent(
        "spending.limits",
        "if limit.most < known.most:",
        "shift boundary",
        "two limits of one place and one amount count alike",
    ),
    *(
        Equivalent(
            "hitl.policy",
            line,
            "shift constant",
            "only which of them is more counts, and stays",
            text,
        )
        for line, text in (("return 0", "(-1)"), ("return 3", "(4)"))
    ),
    Equivalent(
        "hitl.approval_manager",
        'raise AssertionError("a thread is watched without end")',
        "drop raise",
        "for the type checker: a whole thread is watched without end",
    ),
    Equivalent(
        "hitl.hitl_manager",
        "if call is None or spec is None:",
        "drop operand",
        "of no call there is no tool either",
        "(spec is None)",
    ),
    Equivalent(
        "hitl.hitl_manager",
        'id=str(getattr(tool_call, "id", None) or ""),',
        "drop operand",
        "no rule reads the id of a call",
    ),
    Equivalent(
        "hitl.hitl_manager",
        'plugin_name=plugin or "",',
        "drop operand",
        "a call without a plugin has the same name either way",
        "(plugin)",
    ),
    Equivalent(
        "hitl.rules",
        'return re.split(r"[*?[]", self.tool, maxsplit=1)[0]',
        "shift constant",
        "only the first part is taken",
    ),
    Equivalent(
        "hitl.rules",
        "for problem in error.errors(include_url=False, include_context=False, "
        "include_input=False):",
        "flip truth",
        "what is left out is not read",
    ),
    Equivalent(
        "tealagents.v1alpha1.access",
        "head = await self._engine.catalog.head(task_id, caller.user_id, lasting=True)",
        "flip truth",
        SHORTCUT,
    ),
    Equivalent(
        "tools.addresses",
        "return USUAL_PORTS.get(parts.scheme, 0) if port is None else port",
        "shift constant",
        "schemes without a usual port are refused before",
    ),
    Equivalent(
        "persistence.encoding",
        "after: int = 0,",
        "shift constant",
        "no event has the number 0",
        "(-1)",
    ),
    Equivalent(
        "persistence.encoding",
        "if thread.chain and last_chain(thread, records) != thread.chain:",
        "drop operand",
        "of a head without a chain none is made",
        "(last_chain(thread, records) != thread.chain)",
    ),
    *(
        Equivalent(
            "persistence.encoding",
            line,
            operator,
            "it only says whether a commit is looked at more closely, and more of them are",
            text,
        )
        for line, operator, text in (
            ('(_N in body and body.find(b"NaN") >= 0)', "drop operand", "(_N in body)"),
            ('(_N in body and body.find(b"NaN") >= 0)', "drop operand", "(body.find(b'NaN') >= 0)"),
            (
                '(_N in body and body.find(b"NaN") >= 0)',
                "swap and/or",
                "(_N in body or body.find(b'NaN') >= 0)",
            ),
            ('(_N in body and body.find(b"NaN") >= 0)', "shift constant", None),
            ('or (_I in body and body.find(b"Infinity") >= 0)', "drop operand", None),
            ('or (_I in body and body.find(b"Infinity") >= 0)', "swap and/or", None),
            ("or (not body.isascii() and body.find(_REPLACEMENT) >= 0)", "drop operand", None),
            ("or (not body.isascii() and body.find(_REPLACEMENT) >= 0)", "swap and/or", None),
            ("or (not body.isascii() and body.find(_REPLACEMENT) >= 0)", "shift constant", None),
            (
                'or len(body) - len(body.replace(b"{", b"").replace(b"[", b"")) > _SURELY_SHALLOW',
                "shift boundary",
                None,
            ),
        )
    ),
    *(
        Equivalent(
            "persistence.encoding",
            line,
            operator,
            "a record begins with a brace",
            text,
        )
        for line, operator, text in (
            ('(_N in body and body.find(b"NaN") >= 0)', "shift boundary", None),
            ('or (_I in body and body.find(b"Infinity") >= 0)', "shift boundary", None),
            ('or (_I in body and body.find(b"Infinity") >= 0)', "shift constant", "(1)"),
        )
    ),
    Equivalent(
        "persistence.encoding",
        'or (_I in body and body.find(b"Infinity") >= 0)',
        "shift constant",
        "it only chooses the careful way to read a record, which reads every record alike",
        "(-1)",
    ),
    Equivalent(
        "persistence.encoding",
        "head = self._HEAD.match(body) if len(body) > self.LONG else None",
        "shift boundary",
        "it only chooses the quicker way to read a record, which reads every record alike",
    ),
    Equivalent(
        "persistence.encoding",
        "or (not body.isascii() and body.find(_REPLACEMENT) >= 0)",
        "shift boundary",
        "a record begins with a brace",
    ),
    Equivalent(
        "persistence.file.lines",
        'commit_id = line.commit_id or ""',
        "drop operand",
        "a claim, which has no id, is never answered with",
        "(line.commit_id)",
    ),
    Equivalent(
        "persistence.file.lines",
        "start = len(_START % 0)",
        "shift constant",
        "every number has the same width there",
    ),
    Equivalent(
        "persistence.file.log",
        "if first == len(self.first_seqs) or self.first_seqs[first] > seq + 1:",
        "shift constant",
        "the line before is read too, and nothing is taken from it",
        "(0)",
    ),
    Equivalent(
        "persistence.file.log",
        "if first == len(self.first_seqs) or self.first_seqs[first] > seq + 1:",
        "swap arithmetic",
        "the line before is read too, and nothing is taken from it",
        "(seq - 1)",
    ),
    Equivalent(
        "persistence.file.log",
        "if commit_id is not None and next_seq > self.next_seq:",
        "drop operand",
        "a claim, which has no id, has no events either",
        "(next_seq > self.next_seq)",
    ),
    *(
        Equivalent(
            "persistence.file.log",
            "if max_bytes is not None and first < end:",
            operator,
            "of no lines there is none too many",
            text,
        )
        for operator, text in (
            ("shift boundary", None),
            ("drop operand", "(max_bytes is not None)"),
        )
    ),
    Equivalent(
        "persistence.file.log",
        "for first_seq, offset in zip(known.first_seqs, known.offsets, strict=True):",
        "flip truth",
        "each line has both",
    ),
    Equivalent(
        "persistence.file.log",
        'with open(fd, "rb", closefd=False, buffering=1 << 18) as stream:',
        "shift constant",
        "it only says how much is read at a time",
    ),
    Equivalent(
        "persistence.file.log",
        "if os.fstat(fd).st_size > known.size:",
        "shift boundary",
        "to cut a file at its end changes nothing",
    ),
    Equivalent(
        "persistence.file.log",
        "if seen is not None and seen[0] == stamp[0] and seen[1] < stamp[1]:",
        "drop operand",
        "a line of another file does not match its place, and then all of it is read",
        "(seen is not None and seen[1] < stamp[1])",
    ),
    Equivalent(
        "persistence.file.log",
        "while known.size < stamp[1] and self._take_in_line(known, stream):",
        "drop operand",
        "what was appended since is read now, and not by the next look",
        "(self._take_in_line(known, stream))",
    ),
    Equivalent(
        "persistence.file.log",
        "return 1000 + 200 * len(self.known.commits) + 600 * len(self.known.entries)",
        "shift constant",
        "an estimate: what is kept in memory is bounded to the same with a byte more or less",
    ),
    Equivalent(
        "persistence.file.tree",
        "pause = min(pause * 2, LONGEST_PAUSE_SECONDS)",
        "shift constant",
        "it only paces the looks at a lock",
        "(1)",
    ),
    Equivalent(
        "persistence.file.tree",
        "fcntl.flock(fd, fcntl.LOCK_UN)",
        "drop statement",
        "the file is closed right after, which gives its lock up too",
    ),
    Equivalent(
        "persistence.file.tree",
        "time.sleep(pause)",
        "drop statement",
        "it would wait for the lock without a pause, and as long",
    ),
    Equivalent(
        "persistence.sqlite.group_writer",
        "self._connection.set_busy_timeout(0)",
        "shift constant",
        "each try to get the lock would wait a millisecond for it",
        "(1)",
    ),
    Equivalent(
        "persistence.sqlite.rows",
        "if record.last_seq < due or record.first_seq > due:",
        "drop operand",
        "it ends at the next record, or with the log",
        "(record.first_seq > due)",
    ),
    Equivalent(
        "persistence.sqlite.store",
        "first_seq = 1 if isinstance(commit.guard, Absent) else commit.guard.next_seq",
        "shift constant",
        "no event has the number 0",
        "(0)",
    ),
    Equivalent(
        "persistence.sqlite.store",
        "for (_, future), result in zip(waiting, results, strict=True):",
        "flip truth",
        "there are as many results as steps",
    ),
    Equivalent(
        "persistence.sqlite.store",
        "if self._writer and self._readers and self._connection:",
        "drop operand",
        "the three are set and cleared together",
    ),
)


def is_equivalent(mutant: Mutant, source: str) -> bool:
    return any(one.is_of(mutant, source) for one in EQUIVALENT)
