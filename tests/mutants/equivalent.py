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
        "engine.run.lifecycle",
        "if run.status is RunStatus.WAITING and not known.state.queue:",
        "drop operand",
        "a run at work has a live owner, and then the commit is refused; or none, and may be ended",
        "(not known.state.queue)",
    ),
    Equivalent(
        "engine.run.context_window",
        "if 2 * (transcript.tokens + overhead) <= context.budget and _is_short(active, context):",
        "shift boundary",
        SHORTCUT,
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
        "engine.run.rounds",
        "if size > agent.context_window.budget and isinstance(messages, Conversation):",
        "shift boundary",
        "`cut_to_fit` returns what just fits as it is",
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
        'or (_I in body and body.find(b"Infinity") >= 0)',
        "shift constant",
        "it only chooses the careful way to read a record, which reads every record alike",
        "(-1)",
    ),
    Equivalent(
        "persistence.file.tree",
        "time.sleep(pause)",
        "drop statement",
        "it would wait for the lock without a pause, and as long",
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
        "if self._writer and self._readers and self._connection:",
        "drop operand",
        "the three are set and cleared together",
    ),
)


def is_equivalent(mutant: Mutant, source: str) -> bool:
    return any(one.is_of(mutant, source) for one in EQUIVALENT)
