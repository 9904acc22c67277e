"""What goes wrong: each fault strikes at its moment, and all are over when the world heals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulation.disk import STATE, Disk
from tests.simulation.instance import Instance
from tests.simulation.plan import Fault
from tests.simulation.store_port import Shadow
from tests.simulation.substitution import WORLD
from tests.simulation.virtual_loop import VirtualLoop

DAY = 86_400.0
# How long an instance is out of service when it is killed and started again.
REBOOT = (0.3, 2.0, 20.0)
# An instance whose files were taken away notices it within this time, at its next sign of life.
NOTICING = 30.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """From when to when an instance, or all of them, cannot be held to any bound in time."""

    begins: float
    ends: float
    instance: int | None = None

    def touches(self, begins: float, ends: float, instance: int) -> bool:
        concerns = self.instance is None or self.instance == instance
        return concerns and self.begins <= ends and begins <= self.ends


@dataclass(slots=True)
class Faults:
    loop: VirtualLoop
    instances: list[Instance]
    disk: Disk
    shadow: Shadow
    trace: Callable[..., None] = lambda *_: None
    disturbances: list[Disturbance] = field(default_factory=list)
    # When a store was put back to an earlier state.
    restored: list[float] = field(default_factory=list)
    # Instances that went on after their files were taken away.
    unnoticed: list[str] = field(default_factory=list)
    # All files are exchanged for one reason at a time.
    _exchange: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def strike(self, fault: Fault) -> None:
        await asyncio.sleep(max(0.0, fault.at - self.loop.time()))
        instance = self.instances[fault.instance % len(self.instances)]
        self.trace("fault", fault.kind, f"i{instance.index}", f"{fault.seconds} s")
        await getattr(self, f"_{fault.kind}")(instance, fault)

    async def heal(self) -> None:
        """Every fault is over, and every instance that is to run runs."""
        self.disk.heal()
        for instance in self.instances:
            instance.trouble.is_away = instance.trouble.is_full = False
            instance.trouble.unknown_before = instance.trouble.unknown_after = 0
            instance.trouble.late = 0
            instance.signals.lost = instance.signals.late = False
            instance.process.skew = 0.0
            self.loop.wake(instance.process)
            instance.revive()

    def disturb(self, seconds: float, instance: Instance | None = None) -> Disturbance:
        now = self.loop.time()
        index = None if instance is None else instance.index
        # What was caused before may show its effects for a while after.
        caused = Disturbance(now - 1.0, now + seconds + 25.0, index)
        self.disturbances.append(caused)
        return caused

    async def _unknown_before(self, instance: Instance, fault: Fault) -> None:
        self.disturb(10.0, instance)
        instance.trouble.unknown_before += 1 + fault.number % 5

    async def _unknown_after(self, instance: Instance, fault: Fault) -> None:
        self.disturb(10.0, instance)
        instance.trouble.unknown_after += 1 + fault.number % 5

    async def _late_commit(self, instance: Instance, fault: Fault) -> None:
        self.disturb(10.0, instance)
        instance.trouble.late += 1 + fault.number % 2

    async def _late_signals(self, instance: Instance, fault: Fault) -> None:
        self.disturb(fault.seconds, instance)
        instance.signals.late = True
        await asyncio.sleep(fault.seconds)
        instance.signals.late = False

    async def _lost_signals(self, instance: Instance, fault: Fault) -> None:
        self.disturb(fault.seconds, instance)
        instance.signals.lost = True
        await asyncio.sleep(fault.seconds)
        instance.signals.lost = False

    async def _stall(self, instance: Instance, fault: Fault) -> None:
        self.disturb(fault.seconds, instance)
        process = instance.process
        self.loop.stall(process)
        await asyncio.sleep(fault.seconds)
        self.loop.wake(process)

    async def _kill(self, instance: Instance, fault: Fault) -> None:
        if not instance.is_alive:
            return
        pause = REBOOT[fault.number % len(REBOOT)]
        self.disturb(pause, instance)
        instance.kill()
        await asyncio.sleep(pause)
        instance.revive()

    async def _lose(self, instance: Instance, fault: Fault) -> None:
        """The instance that drives a run is killed."""
        owners = {life.owner_at(self.loop.time()) for life in self.shadow.living()}
        for one in self.instances:
            if one.owner in owners:
                await self._kill(one, fault)
                return

    async def _restart(self, instance: Instance, fault: Fault) -> None:
        if not instance.is_alive or instance.process.state != "running":
            return
        self.disturb(20.0, instance)
        process = instance.process
        await instance.stop()
        if instance.process is process:
            self.loop.kill(process)
            instance.start()

    async def _roll(self, instance: Instance, fault: Fault) -> None:
        self.disturb(60.0)
        for one in self.instances:
            await self._restart(one, fault)

    async def _clock(self, instance: Instance, fault: Fault) -> None:
        instance.shift_clock((25 * 3600.0, -2.0, 2.0, 90.0)[fault.number % 4])

    async def _away(self, instance: Instance, fault: Fault) -> None:
        """From one instance, or from all."""
        away = [instance] if fault.number % 2 else self.instances
        for one in away:
            self.disturb(fault.seconds, one)
            one.trouble.is_away = True
        await asyncio.sleep(fault.seconds)
        for one in away:
            one.trouble.is_away = False

    async def _cut(self, instance: Instance, fault: Fault) -> None:
        instance.server.cut()

    async def _full(self, instance: Instance, fault: Fault) -> None:
        self.disturb(fault.seconds)
        self._fill(True)
        await asyncio.sleep(fault.seconds)
        self._fill(False)

    def _fill(self, is_full: bool) -> None:
        if self.disk.kind == "memory":
            for one in self.instances:
                one.trouble.is_full = is_full
        else:
            STATE.is_full = is_full

    async def _refused_sync(self, instance: Instance, fault: Fault) -> None:
        """The next sync of this process fails; a supervisor starts it again once it ends."""
        self.disturb(1e9, instance)
        STATE.refusing.add(instance.process)

    async def _restore(self, instance: Instance, fault: Fault) -> None:
        """A backup is made, and put back while no instance runs."""
        async with self._exchange:
            self.disk.back_up()
            await asyncio.sleep(min(fault.seconds, 10.0))
            self.disturb(1e9)
            for one in self.instances:
                one.kill()
            self.disk.put_back()
            self.shadow.lives.clear()
            self.shadow.contradictions.clear()
            self.restored.append(self.loop.time())
            for one in self.instances:
                one.revive()

    async def _power_loss(self, instance: Instance, fault: Fault) -> None:
        """All instances end at once, with the machine they share and what it had not synced."""
        async with self._exchange:
            pause = REBOOT[fault.number % len(REBOOT)]
            self.disturb(pause)
            image = self.disk.image(Random(fault.number))
            for one in self.instances:
                one.kill()
                WORLD.gone.add(one.owner)
            self.disk.lose_power(image)
            await asyncio.sleep(pause)
            for one in self.instances:
                one.revive()

    async def _taken_away(self, instance: Instance, fault: Fault) -> None:
        """All files are replaced by copies, or some are removed and come back after a while."""
        async with self._exchange:
            caused = self.disturb(1e9)
            running = [(one, one.process) for one in self.instances if one.is_alive]
            opening = [one for one in self.instances if not one.is_alive]
            for one in opening:
                one.kill()
            self.disk.back_up()
            if fault.number % 2:
                self.disk.put_back()
            else:
                self.disk.take_away(fault.number // 2)
            for one in opening:
                one.revive()
            await asyncio.sleep(NOTICING)
            for one, process in running:
                if one.is_alive and one.process is process and not self._is_excused(one, caused):
                    self.unnoticed.append(f"{one.owner} did not notice that its files are gone")
            if self.disk.is_away:
                for one in self.instances:
                    one.kill()
                self.disk.put_back()
                for one in self.instances:
                    one.revive()

    def _is_excused(self, instance: Instance, caused: Disturbance) -> bool:
        """Whether something else kept it from noticing."""
        return any(
            one is not caused and one.touches(caused.begins, self.loop.time(), instance.index)
            for one in self.disturbances
        )
