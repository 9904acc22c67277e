"""`teal serve --workers N`: one address, N processes that serve it, and this one that looks after
them.

It serves nothing itself and loads nothing of the server. A worker that ends is started again, at
once if it had served for a while, otherwise after a pause that grows. One whose event loop has been
stuck for a minute is killed. On SIGHUP each worker is replaced by one that has read the
configuration as it is then: the new one serves before the old one drains, and if it cannot serve,
the old ones stay.

Workers are processes of their own, not forks: each reads the configuration itself, and a
replacement runs the code that is installed by then.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sk_agents.cli.launch import configure_logging, worker_count
from sk_agents.cli.listening import CannotListen, SharedAddress
from sk_agents.cli.logs import JSON_ENTRY, QueuedHandler
from sk_agents.cli.options import Exit
from sk_agents.cli.worker_link import MOST_BYTES, PAGES_SECONDS
from sk_agents.config.settings import LogFormat, Settings, load_settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.telemetry.logs import print_line

logger = logging.getLogger(__name__)

# How long a worker may take until it is ready.
START_SECONDS = 120.0
# How long it may take to hand its runs over; a server that is alone takes up to 20 seconds.
DRAIN_SECONDS = 25.0
# How long the last lines of an ended worker are waited for. A program that it started and that
# outlived it holds its standard error open.
LAST_LINES_SECONDS = 1.0
# How long it may take to end when it is to end at once.
END_SECONDS = 3.0
# How often the supervisor looks whether its workers have said something.
LOOK_SECONDS = 10.0
# A worker that has said nothing for so many looks is stuck; another instance takes its runs over by
# then. Not by the clock: while the supervisor itself was stopped it has heard none of them.
SILENT_LOOKS = 6
# After a worker that had served for so long, the next one starts at once.
SERVED_SECONDS = 60.0
# Between two tries of a worker that ends again and again.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
# While a worker is away for longer, its share of new connections goes to the others.
SHORT_PAUSE = 2.0
# Of a line that a worker writes.
MOST_LINE = 1024 * 1024

State = Literal["starting", "ready", "draining", "restarting"]


def supervise(
    config_paths: Sequence[Path], overrides: Mapping[str, Any], settings: Settings, count: int
) -> Exit:
    """Serve with so many workers until a signal says stop.

    The exit code is 0 then. It is the worker's own if the first one cannot serve.
    """
    try:
        address = SharedAddress(settings.host, settings.port)
    except CannotListen as error:
        print_line(sys.stderr, f"teal: {error}")
        return error.code
    supervisor = Supervisor(config_paths, overrides, settings, address)
    return asyncio.run(supervisor.run(count))


@dataclass(slots=True, eq=False)
class Worker:
    """A process, and this end of its link."""

    number: int
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    started: float = field(default_factory=time.monotonic)
    unheard_looks: int = 0
    state: State = "starting"
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    line: str = ""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def send(self, **message: Any) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message).encode() + b"\n")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()

    def is_stuck(self) -> bool:
        """To be asked at each look."""
        self.unheard_looks += 1
        return self.state == "ready" and self.unheard_looks > SILENT_LOOKS

    async def becomes_ready(self) -> bool:
        """False if it ends, or does not become ready in time."""
        waiting = [
            asyncio.create_task(self.is_ready.wait()),
            asyncio.create_task(self.process.wait()),
        ]
        await asyncio.wait(waiting, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        return self.is_ready.is_set() and self.process.returncode is None

    async def ends_within(self, seconds: float) -> None:
        """It is killed if it does not."""
        try:
            async with asyncio.timeout(seconds):
                await self.process.wait()
        except TimeoutError:
            logger.error("a worker did not end and is killed", extra=self.facts)
            self.kill()
            await self.process.wait()

    @property
    def facts(self) -> dict[str, Any]:
        return {"worker": self.number, "worker_pid": self.process.pid}


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """A place for one worker: its socket stays while workers come and go."""

    number: int
    listener: socket.socket | None
    worker: Worker | None = None
    restarts: int = 0
    failures: int = 0
    has_tried: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def pause_after(self, served_seconds: float) -> float:
        if served_seconds >= SERVED_SECONDS:
            self.failures = 0
            return 0.0
        self.failures += 1
        return PAUSES[min(self.failures, len(PAUSES)) - 1]


class Supervisor:
    def __init__(
        self,
        config_paths: Sequence[Path],
        overrides: Mapping[str, Any],
        settings: Settings,
        address: SharedAddress,
    ) -> None:
        self._config_paths = config_paths
        self._overrides = overrides
        self._settings = settings
        self._log_format = settings.log_format
        self._address = address
        self._slots: list[WorkerSlot] = []
        self._alive: set[Worker] = set()
        self._signals = 0
        self._stopping = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None
        self._asked: dict[int, tuple[Worker, int, dict[int, str | None]]] = {}
        self._ids = count()

    async def run(self, workers: int) -> Exit:
        with self._handling_signals():
            first = self._add_slot()
            first.worker = await self._spawn(first)
            if not await self._unless_stopping(first.worker.becomes_ready()):
                return await self._give_up(first.worker)
            first.has_tried.set()
            first.task = asyncio.create_task(self._keep(first))
            self._add_slots(workers)
            watching = asyncio.create_task(self._watch())
            await self._announce(first.worker.line)
            await self._stopping.wait()
            await self._end_all()
            watching.cancel()
        return Exit.DONE

    # -- starting

    def _add_slot(self) -> WorkerSlot:
        slot = WorkerSlot(len(self._slots) + 1, self._address.open())
        self._slots.append(slot)
        return slot

    def _add_slots(self, total: int) -> None:
        while len(self._slots) < total:
            slot = self._add_slot()
            slot.task = asyncio.create_task(self._keep(slot))

    async def _unless_stopping(self, work: Coroutine[Any, Any, bool]) -> bool:
        """What comes of it; False if a signal comes first."""
        stopping = asyncio.create_task(self._stopping.wait())
        working = asyncio.create_task(work)
        await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            return working.result()
        working.cancel()
        return False

    async def _give_up(self, worker: Worker) -> Exit:
        """What the first worker could not serve, no other could."""
        if self._stopping.is_set():
            await self._end_all()
            return Exit.DONE
        if worker.process.returncode is None:
            logger.error("the first worker was not ready in time", extra=worker.facts)
            worker.kill()
        await self._has_ended(worker)
        code = worker.process.returncode
        return Exit(code) if code in set(Exit) - {Exit.DONE} else Exit.FAILED

    async def _announce(self, line: str) -> None:
        """One line, once each worker is ready or has failed to become so."""
        for slot in list(self._slots):
            await self._unless_stopping(slot.has_tried.wait())
        if not self._stopping.is_set():
            print_line(sys.stdout, f"{line} · workers: {len(self._slots)}")

    async def _spawn(self, slot: WorkerSlot) -> Worker:
        """Raises OSError, CannotListen: the system has nothing left for one more process, or lacks
        the interpreter while another version is being installed."""
        if slot.listener is None:
            slot.listener = self._address.open()
        overrides = {name: value for name, value in self._overrides.items() if value is not None}
        with ExitStack() as ours, ExitStack() as theirs:
            control, its_control = socket.socketpair()
            ours.enter_context(control).setblocking(False)
            theirs.enter_context(its_control)
            # Not asyncio's own pipe: `wait` would wait for its end, and programs that the worker
            # has started may hold it open after the worker's own end.
            log, its_log = os.pipe()
            log_file = ours.enter_context(os.fdopen(log, "rb", 0))
            theirs.callback(os.close, its_log)
            orders = {
                "number": slot.number,
                "config": [str(path) for path in self._config_paths],
                "overrides": {**overrides, "workers": 1},
                "listener": slot.listener.fileno(),
                "control": its_control.fileno(),
            }
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sk_agents.cli.worker", json.dumps(orders)),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=its_log,
                pass_fds=(slot.listener.fileno(), its_control.fileno()),
                # Ctrl-C in a terminal is for this process; it tells them.
                start_new_session=True,
            )
            ours.pop_all()
        reader, writer = await asyncio.open_unix_connection(sock=control, limit=MOST_BYTES)
        worker = Worker(slot.number, process, reader, writer)
        worker.tasks = [
            asyncio.create_task(self._listen(worker)),
            asyncio.create_task(self._pass_on_log(worker, log_file)),
        ]
        self._alive.add(worker)
        if self._stopping.is_set():
            worker.send(type="drain")
        return worker

    # -- looking after them

    async def _keep(self, slot: WorkerSlot) -> None:
        """Have a worker in this slot until all are to end."""
        while not self._stopping.is_set():
            if slot.worker is None:
                try:
                    slot.worker = await self._spawn(slot)
                except (OSError, CannotListen) as error:
                    await self._try_later(slot, error)
                    continue
                self._tell()
                if not await slot.worker.becomes_ready():
                    slot.worker.kill()
                slot.has_tried.set()
            worker = slot.worker
            await self._has_ended(worker)
            if slot.worker is not worker:
                continue
            slot.worker = None
            if not self._stopping.is_set():
                await self._restart_later(slot, worker)

    async def _has_ended(self, worker: Worker) -> None:
        await worker.process.wait()
        _, unfinished = await asyncio.wait(worker.tasks, timeout=LAST_LINES_SECONDS)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*worker.tasks, return_exceptions=True)
        worker.writer.close()
        self._alive.discard(worker)

    async def _restart_later(self, slot: WorkerSlot, worker: Worker) -> None:
        slot.restarts += 1
        pause = slot.pause_after(time.monotonic() - worker.started)
        extra = {**worker.facts, "exit": worker.process.returncode, "pause": pause}
        logger.error("a worker has ended and is started again", extra=extra)
        self._tell()
        await self._pause(slot, pause)

    async def _try_later(self, slot: WorkerSlot, error: Exception) -> None:
        slot.has_tried.set()
        pause = slot.pause_after(0.0)
        extra = {"worker": slot.number, "pause": pause}
        logger.error("a worker could not be started: %s", error, extra=extra)
        await self._pause(slot, pause)

    async def _pause(self, slot: WorkerSlot, pause: float) -> None:
        if pause > SHORT_PAUSE and slot.listener is not None:
            slot.listener.close()
            slot.listener = None
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stopping.wait()

    async def _watch(self) -> None:
        """Kill what is stuck."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for worker in list(self._alive):
                if worker.is_stuck():
                    logger.error("a worker is stuck and is killed", extra=worker.facts)
                    worker.kill()

    # -- a new configuration

    async def _reload(self) -> None:
        # Before the first worker serves there is none to replace.
        if not await self._unless_stopping(self._slots[0].has_tried.wait()):
            return
        try:
            settings = load_settings(self._config_paths, **self._overrides)
            workers = worker_count(settings)
        except ConfigurationError as error:
            logger.error("the new configuration is not used: %s", error)
            return
        if (settings.host, settings.port) != (self._settings.host, self._settings.port):
            logger.warning("another address is used after a restart only")
        logger.info("workers are replaced one by one", extra={"workers": workers})
        for slot in list(self._slots[:workers]):
            if not await self._replace(slot):
                logger.error(
                    "the new configuration is not used: its worker could not serve",
                    extra={"worker": slot.number},
                )
                return
        await self._remove_slots(workers)
        self._add_slots(workers)
        configure_logging(self._config_paths, settings)
        self._log_format = settings.log_format
        logger.info("all workers have the new configuration", extra={"workers": workers})

    async def _replace(self, slot: WorkerSlot) -> bool:
        """Put a new worker into the slot, then end the old one; False if the new one is no good."""
        try:
            new = await self._spawn(slot)
        except (OSError, CannotListen) as error:
            logger.error("a worker could not be started: %s", error, extra={"worker": slot.number})
            return False
        if not await new.becomes_ready() or self._stopping.is_set():
            new.kill()
            await self._has_ended(new)
            return False
        old, slot.worker = slot.worker, new
        slot.failures = 0
        if slot.task is None or slot.task.done():
            slot.task = asyncio.create_task(self._keep(slot))
        if old is not None:
            await self._drain(old)
        self._tell()
        return True

    async def _remove_slots(self, workers: int) -> None:
        for slot in self._slots[workers:]:
            worker, slot.worker = slot.worker, None
            if slot.task is not None:
                slot.task.cancel()
            if slot.listener is not None:
                slot.listener.close()
            if worker is not None:
                await self._drain(worker)
                await self._has_ended(worker)
        del self._slots[workers:]
        self._tell()

    # -- ending

    async def _drain(self, worker: Worker) -> None:
        worker.state = "draining"
        worker.send(type="drain")
        self._tell()
        await worker.ends_within(DRAIN_SECONDS)

    async def _end_all(self) -> None:
        kept = [slot.task for slot in self._slots if slot.task is not None]
        if self._reloading is not None:
            kept.append(self._reloading)
        await asyncio.gather(*(self._drain(worker) for worker in list(self._alive)))
        # One that was just being started knows that it is to end.
        await asyncio.gather(*kept, return_exceptions=True)

    def _end_at_once(self) -> None:
        for worker in list(self._alive):
            worker.send(type="end")
            asyncio.get_running_loop().call_later(END_SECONDS, worker.kill)

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self._signals += 1
            if self._signals == 1:
                self._stopping.set()
            elif self._signals == 2:
                self._end_at_once()
            else:
                for worker in list(self._alive):
                    worker.kill()

        def reload() -> None:
            if self._stopping.is_set():
                return
            if self._reloading is not None and not self._reloading.done():
                logger.warning("workers are being replaced already")
                return
            self._reloading = asyncio.create_task(self._reload())

        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: stop,
            signal.SIGINT: stop,
            signal.SIGHUP: reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    # -- what workers say

    async def _listen(self, worker: Worker) -> None:
        with suppress(OSError):
            async for line in worker.reader:
                worker.unheard_looks = 0
                self._take(worker, json.loads(line))

    def _take(self, worker: Worker, message: dict[str, Any]) -> None:
        match message["type"]:
            case "ready":
                worker.line, worker.state = message["line"], "ready"
                worker.is_ready.set()
                self._tell()
            case "ask_metrics":
                self._ask_for_pages(worker, message["id"])
            case "metrics":
                self._take_page(worker, message["id"], message["page"])

    def _tell(self) -> None:
        """Tell all workers how each of them is."""
        states = [
            {
                "number": slot.number,
                "pid": slot.worker.process.pid if slot.worker is not None else None,
                "state": slot.worker.state if slot.worker is not None else "restarting",
                "restarts": slot.restarts,
            }
            for slot in self._slots
        ]
        for worker in self._alive:
            worker.send(type="workers", workers=states)

    def _ask_for_pages(self, worker: Worker, asked_id: int) -> None:
        others = [
            slot.worker
            for slot in self._slots
            if slot.worker is not None and slot.worker is not worker
        ]
        number = next(self._ids)
        self._asked[number] = (worker, asked_id, {other.number: None for other in others})
        for other in others:
            other.send(type="give_metrics", id=number)
        loop = asyncio.get_running_loop()
        # A worker that is stuck must not cost the page of the others.
        loop.call_later(PAGES_SECONDS * 3 / 4, self._send_pages, number)
        self._send_if_complete(number)

    def _take_page(self, worker: Worker, number: int, page: str) -> None:
        if number in self._asked:
            self._asked[number][2][worker.number] = page
            self._send_if_complete(number)

    def _send_if_complete(self, number: int) -> None:
        if None not in self._asked[number][2].values():
            self._send_pages(number)

    def _send_pages(self, number: int) -> None:
        if number in self._asked:
            worker, asked_id, pages = self._asked.pop(number)
            worker.send(type="pages", id=asked_id, pages=pages)

    async def _pass_on_log(self, worker: Worker, log: BinaryIO) -> None:
        """A worker's lines, with its number, into the one log."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), log
        )
        with closing(transport):
            await self._write_lines(worker, reader)

    async def _write_lines(self, worker: Worker, log: asyncio.StreamReader) -> None:
        unfinished = b""
        while data := await log.read(64 * 1024):
            *lines, unfinished = (unfinished + data).split(b"\n")
            if len(unfinished) > MOST_LINE:
                lines, unfinished = [*lines, unfinished], b""
            for line in lines:
                self._write(worker, line)
        if unfinished:
            self._write(worker, unfinished)

    def _write(self, worker: Worker, line: bytes) -> None:
        text = named_line(worker.number, line.decode(errors="backslashreplace"), self._log_format)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, QueuedHandler):
                handler.write(text)


def named_line(number: int, line: str, log_format: LogFormat) -> str:
    """The worker's line with its number. Workers that were started with other settings write in
    another format than this process, so an entry keeps its own, and what is none, of the
    interpreter, becomes one where lines are objects."""
    if line.startswith(JSON_ENTRY):
        return f'{{"worker": {number}, {line[1:]}'
    if log_format == "text":
        return f"[worker {number}] {line}"
    return json.dumps({"worker": number, "level": "error", "logger": "stderr", "message": line})
