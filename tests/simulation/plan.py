"""What happens in a history: written down before it begins, so that parts of it can be left out.

Everything in a plan follows from its seed. Choices that depend on what has happened by then (which
run, which approval) are made from the action's own `number`, so leaving one action out does not
change what the others mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

STORES = ("memory", "sqlite", "file")
USERS = 2
HORIZON = 40.0


@dataclass(frozen=True, slots=True)
class Action:
    """Something a user does: at an instance, in a chat, at a moment."""

    at: float
    kind: str
    user: int
    chat: int
    instance: int
    number: int
    script: str = ""
    # How long its reader stays, in seconds.
    stays: float = 1e9


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: str
    instance: int
    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    store: str
    instances: int
    actions: tuple[Action, ...]
    faults: tuple[Fault, ...]
    # How long the store takes to answer, at most, in seconds.
    latency: float

    def without(self, actions: Sequence[int] = (), faults: Sequence[int] = ()) -> Plan:
        return replace(
            self,
            actions=tuple(one for at, one in enumerate(self.actions) if at not in actions),
            faults=tuple(one for at, one in enumerate(self.faults) if at not in faults),
        )


# How often each action is chosen, and each fault, by the stores that can have it.
ACTIONS = {
    "start": 10,
    "enqueue": 6,
    "interrupt": 3,
    "edit": 3,
    "regenerate": 2,
    "switch": 2,
    "approve": 8,
    "approve_edited": 2,
    "reject": 2,
    "cancel": 5,
    "delete": 3,
    "make": 1,
    "resume": 5,
    "watch": 3,
    "read": 3,
    "listing": 1,
    "inbox": 1,
    "carry": 1,
}
FAULTS = {
    "unknown_before": 3,
    "unknown_after": 3,
    "late_commit": 2,
    "late_signals": 2,
    "lost_signals": 2,
    "stall": 3,
    "kill": 4,
    "restart": 3,
    "roll": 1,
    "clock": 2,
    "away": 2,
    "cut": 3,
    "full": 2,
}
ON_DISK = {"refused_sync": 2, "restore": 1, "power_loss": 3, "taken_away": 2}
CALM_SHARE = 0.3


def plan_of(seed: int, store: str | None = None) -> Plan:
    random = Random(seed)
    kind = store or STORES[seed % len(STORES)]
    instances = random.choice((2, 3, 3))
    chats = random.choice((1, 1, 2))
    span = random.uniform(5.0, HORIZON)
    actions = [_action(random, span, chats, instances) for _ in range(random.randint(4, 16))]
    faults = []
    if random.random() >= CALM_SHARE:
        table = {**FAULTS, **ON_DISK} if kind != "memory" else FAULTS
        chosen = random.sample(list(table), k=min(len(table), random.randint(1, 3)))
        weights = [table[name] for name in chosen]
        for _ in range(random.randint(1, 5)):
            (name,) = random.choices(chosen, weights)
            faults.append(
                Fault(
                    random.uniform(0.0, span),
                    name,
                    random.randrange(instances),
                    random.choice((0.5, 3.0, 10.0, 30.0, 70.0)),
                    random.randrange(1 << 30),
                )
            )
    themed = _themed(seed, kind, instances)
    if themed is not None:
        actions, faults = list(themed[0]), list(themed[1])
    elif seed % 2 == 0:
        actions += _steering(Random(f"steering {seed}"), span, instances)
    return Plan(
        seed,
        kind,
        instances,
        tuple(sorted(actions, key=lambda one: one.at)),
        tuple(sorted(faults, key=lambda one: one.at)),
        random.choice((0.002, 0.01, 0.1)),
    )


Themed = tuple[Sequence[Action], Sequence[Fault]]


def _themed(seed: int, kind: str, instances: int) -> Themed | None:
    """Of every ten plans, one is about something that chance alone seldom brings together."""
    if seed % 10 != 7:
        return None
    # As many as share no factor with the stores and with ten: each theme meets each store.
    themes = (
        _made_again,
        _lost_often,
        _lent_elsewhere,
        _deleted_while_read,
        _brought_back,
        _without_power,
        _without_files,
    )
    random = Random(f"theme {seed}")
    theme = themes[seed // 10 % len(themes)]
    if theme in (_brought_back, _without_power, _without_files) and kind == "memory":
        theme = _made_again
    return theme(random, instances)


def _made_again(random: Random, instances: int) -> Themed:
    """A chat is deleted at one instance and made again, while another one remembers it."""
    here, there = random.sample(range(instances), 2)
    script = random.choice(("wait:0", "wait:0.2", "wait:0 look:0"))
    steps = [("start", here), ("delete", there), ("start", there), ("start", here)]
    actions = [
        _step(random, 1.0 + 4.0 * at, name, place, script) for at, (name, place) in enumerate(steps)
    ]
    return actions, ()


def _lost_often(random: Random, instances: int) -> Themed:
    """A run with many steps loses its owner again and again, and gets on each time."""
    script = "wait:1 " + " ".join(["look:6"] * 9)
    actions = [_step(random, 0.2, "start", 0, script)]
    faults = [Fault(9.0 + 24.0 * at + random.random(), "lose", 0, 0.5, 0) for at in range(5)]
    return actions, faults


def _lent_elsewhere(random: Random, instances: int) -> Themed:
    """A header is lent at one instance to a run that another one drives."""
    here, there = random.sample(range(instances), 2)
    actions = [_step(random, 0.2, "start", here, f"wait:0.2 look:{random.choice((4, 15))}+sign:1")]
    actions.append(_step(random, 1.0 + random.random(), "approve", there, ""))
    return actions, ()


def _deleted_while_read(random: Random, instances: int) -> Themed:
    """Readers come all the time while the chat is deleted."""
    actions = [_step(random, 0.2, "start", 0, "wait:0 look:0")]
    for at in range(30):
        name = random.choice(("read", "resume", "watch", "carry"))
        place = random.randrange(instances)
        actions.append(_step(random, 2.0 + 0.01 * at, name, place, ""))
    actions.append(_step(random, 2.05 + random.random() * 0.2, "delete", 0, ""))
    return actions, ()


def _brought_back(random: Random, instances: int) -> Themed:
    """A backup is put back, and readers come with what they had seen since."""
    actions = [_step(random, 0.2, "start", 0, "wait:1 look:0.5 look:0.5")]
    actions.extend(
        _step(random, 7.0 + 2.0 * at, "resume", random.randrange(instances), "") for at in range(6)
    )
    return actions, (Fault(random.uniform(0.5, 2.0), "restore", 0, 3.0, 0),)


def _without_power(random: Random, instances: int) -> Themed:
    """Turns with quiet between them, in which only signs of life are written, then no power."""
    return _turns(random, instances, 6.0), (_some_time(random, "power_loss"),)


def _without_files(random: Random, instances: int) -> Themed:
    """Turns one after the other at all instances, and their files are taken away."""
    return _turns(random, instances, 3.0), (_some_time(random, "taken_away"),)


def _steering(random: Random, span: float, instances: int) -> list[Action]:
    """A run that takes its time, and what its user says to it meanwhile, anywhere. Of its own
    choices, so that it changes nothing else of the plan."""
    begun = random.uniform(0.0, span)
    script = random.choice(("wait:5", "wait:1 look:4", "wait:0.2 look:0.5 put:4", "wait:1 send:1"))
    actions = [_step(random, begun, "enqueue", random.randrange(instances), script)]
    for _ in range(random.randint(1, 4)):
        at = begun + random.uniform(0.1, 10.0)
        told = random.choice(("wait:0", "wait:0.2", "wait:1 look:0.5", "wait:0 put:1"))
        actions.append(_step(random, at, "steer", random.randrange(instances), told))
    if random.random() < 0.4:
        at = begun + random.uniform(0.5, 12.0)
        actions.append(_step(random, at, "stop_after_step", random.randrange(instances), ""))
    return actions


def _turns(random: Random, instances: int, distance: float) -> list[Action]:
    return [
        _step(random, 0.5 + distance * at, "start", random.randrange(instances), "wait:0.2 look:0")
        for at in range(5)
    ]


def _some_time(random: Random, kind: str) -> Fault:
    return Fault(random.uniform(3.0, 28.0), kind, 0, 0.5, random.randrange(1 << 30))


def _step(random: Random, at: float, kind: str, instance: int, script: str) -> Action:
    return Action(at, kind, 0, 0, instance, random.randrange(1 << 30), script)


def _action(random: Random, span: float, chats: int, instances: int) -> Action:
    (kind,) = random.choices(list(ACTIONS), list(ACTIONS.values()))
    at = random.uniform(0.0, span) if random.random() < 0.8 else random.uniform(0.0, 1.0)
    return Action(
        at,
        kind,
        random.randrange(USERS) if random.random() < 0.2 else 0,
        random.randrange(chats),
        random.randrange(instances),
        random.randrange(1 << 30),
        _script(random),
        1e9 if random.random() < 0.8 else random.choice((0.0, 0.3, 2.0)),
    )


def _script(random: Random) -> str:
    """What the model does when it reads this, see `ModelActor`."""
    words = [f"wait:{random.choice((0, 0.2, 1, 5, 15))}"]
    for _ in range(random.choice((0, 0, 1, 1, 1, 2))):
        tools = random.choices(
            ("send", "post", "put", "look", "sign"), (5, 2, 2, 3, 1), k=random.choice((1, 1, 2))
        )
        words.append("+".join(f"{tool}:{random.choice((0, 0.5, 4, 15))}" for tool in tools))
    if random.random() < 0.08:
        words.append(random.choice(("break", "fail")))
    return " ".join(words)
