"""Threads of the simulated processes: greenlets that give the baton back where a thread may wait.

Production code runs as it is. What it takes for `threading`, `time`, `queue` and executors are the
parts below: a wait is a wait in virtual time, and a `breather` is a place where a real thread may
lose the processor to another process.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import greenlet  # type: ignore[import-untyped]  # has no stubs

from tests.simulation.virtual_loop import PROCESS, Process, VirtualLoop

T = TypeVar("T")

WORKERS = 4
START = 1_000.0
# How long it takes until a thread runs, and until its result is back at the loop.
HANDOVER = 0.0004


def running_loop() -> VirtualLoop:
    loop = _LOOPS[-1]
    assert isinstance(loop, VirtualLoop)
    return loop


_LOOPS: list[VirtualLoop] = []


class Job:
    """One call in a thread of its own; it belongs to the process that started it."""

    def __init__(self, work: Callable[[], object], worker: object = None) -> None:
        self.worker = worker if worker is not None else self
        self.is_over = False
        self._context = contextvars.copy_context()
        self._greenlet = greenlet.greenlet(self._run)
        self._greenlet.gr_context = contextvars.copy_context()
        self._work = work
        self._timer: asyncio.Handle | None = None
        process = PROCESS.get()
        self._process = process
        if process is not None:
            process.at_death.append(self.kill)

    def start(self, delay: float) -> None:
        self._resume_in(delay)

    def pause(self, seconds: float) -> None:
        """Give the baton back for so long. Called by the job itself."""
        self._resume_in(seconds)
        self._wait()

    def wait(self) -> None:
        """Give the baton back until `resume`."""
        self._wait()

    def resume(self) -> None:
        """Go on soon, wherever it waits."""
        if self._timer is None:
            self._timer = running_loop().call_soon(self._switch, context=self._context)

    def kill(self) -> None:
        """Its process is gone: locks and files are let go of, nothing else happens."""
        if self._timer is not None:
            self._timer.cancel()
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.parent = greenlet.getcurrent()
            self._greenlet.throw(greenlet.GreenletExit)
        self.is_over = True

    def _wait(self) -> None:
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()

    def _resume_in(self, seconds: float) -> None:
        loop = running_loop()
        self._timer = loop.call_later(seconds, self._switch, context=self._context)

    def _switch(self) -> None:
        self._timer = None
        self._greenlet.parent = greenlet.getcurrent()
        self._greenlet.switch()

    def _run(self) -> None:
        _JOBS[self._greenlet] = self
        try:
            self._work()
        finally:
            del _JOBS[self._greenlet]
            self.is_over = True
            if self._process is not None and self._process.state != "dead":
                self._process.at_death.remove(self.kill)


_JOBS: dict[Any, Job] = {}


def current_job() -> Job | None:
    return _JOBS.get(greenlet.getcurrent())


def breather(chance: float) -> None:
    """Perhaps lose the processor for a moment, if this is a thread."""
    job = current_job()
    if job is not None:
        random = running_loop().random
        if random.random() < chance:
            job.pause(random.random() * 0.05)


def sleep(seconds: float) -> None:
    job = current_job()
    assert job is not None, "the event loop itself was put to sleep"
    job.pause(seconds)


class Pool:
    """The worker threads of one executor."""

    def __init__(self, size: int) -> None:
        self._free: list[object] = [object() for _ in range(size)]
        self._waiting: deque[Callable[[object], None]] = deque()
        self._unfinished = 0
        self._joining: list[Job] = []

    def submit(self, loop: VirtualLoop, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = loop.create_future()
        self._unfinished += 1

        def begin(worker: object) -> None:
            Job(lambda: self._serve(loop, call, future, worker), worker).start(
                loop.random.random() * HANDOVER
            )

        if self._free:
            begin(self._free.pop())
        else:
            context = contextvars.copy_context()
            self._waiting.append(lambda worker: context.run(begin, worker))
        return future

    def _serve(
        self, loop: VirtualLoop, call: Callable[[], T], future: asyncio.Future[T], worker: object
    ) -> None:
        try:
            result = call()
        except greenlet.GreenletExit:
            raise
        except BaseException as error:
            loop.call_later(loop.random.random() * HANDOVER, _refuse, future, error)
        else:
            loop.call_later(loop.random.random() * HANDOVER, _settle, future, result)
        if self._waiting:
            self._waiting.popleft()(worker)
        else:
            self._free.append(worker)
        self._unfinished -= 1
        if not self._unfinished:
            for job in self._joining:
                job.resume()

    def join(self) -> None:
        """Wait for everything that was submitted."""
        job = current_job()
        assert job is not None or not self._unfinished, "the event loop waits for a thread"
        while self._unfinished and job is not None:
            self._joining.append(job)
            job.wait()


class VirtualExecutor:
    """Stands for `ThreadPoolExecutor`."""

    def __init__(self, max_workers: int = WORKERS, thread_name_prefix: str = "") -> None:
        self.pool = Pool(min(max_workers, WORKERS))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            self.pool.join()


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _refuse(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class ThreadedLoop(VirtualLoop):
    """A virtual loop whose executors are virtual threads too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._default: dict[Process | None, Pool] = {}

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        if isinstance(executor, VirtualExecutor):
            return executor.pool.submit(self, lambda: func(*args))
        process = PROCESS.get()
        if process not in self._default:
            # Without a bound, as good as: a real one has more threads than a process has tasks.
            self._default[process] = Pool(1_000)
        return self._default[process].submit(self, lambda: func(*args))

    def run_until_complete(self, future: Any) -> Any:
        _LOOPS.append(self)
        try:
            return super().run_until_complete(future)
        finally:
            _LOOPS.pop()


class VirtualTime:
    """Stands for the module `time`."""

    def monotonic(self) -> float:
        return START + running_loop().time() if _LOOPS else time.monotonic()

    def time(self) -> float:
        process = PROCESS.get()
        skew = process.skew if process is not None else 0.0
        return EPOCH + running_loop().time() + skew if _LOOPS else time.time()

    def sleep(self, seconds: float) -> None:
        sleep(seconds)

    perf_counter = monotonic

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


EPOCH = 1_800_000_000.0


class VirtualEvent:
    """Stands for `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Job] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for job in self._waiting:
            if job._timer is not None:
                job._timer.cancel()
                job._timer = None
            job.resume()
        self._waiting.clear()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        job = current_job()
        if not self._is_set and job is not None:
            self._waiting.append(job)
            try:
                job.wait() if timeout is None else job.pause(timeout)
            finally:
                if job in self._waiting:
                    self._waiting.remove(job)
        return self._is_set


class VirtualLock:
    """Stands for `threading.Lock` and, since a job may take it twice, for `RLock`."""

    def __init__(self) -> None:
        self._holder: object = None
        self._depth = 0
        self._waiting: deque[Job] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me: object = current_job() or "loop"
        while self._holder is not None and self._holder is not me:
            if not blocking:
                return False
            assert isinstance(me, Job), "the event loop waits for a thread's lock"
            self._waiting.append(me)
            me.wait()
        self._holder = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            while self._waiting:
                job = self._waiting.popleft()
                if not job.is_over:
                    job.resume()
                    break

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class VirtualThread:
    """Stands for `threading.Thread`."""

    def __init__(
        self,
        *,
        target: Callable[..., object],
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self._target, self._args = target, args
        self._job: Job | None = None
        self._joining: list[Job] = []

    def start(self) -> None:
        self._job = Job(self._run)
        self._job.start(running_loop().random.random() * HANDOVER)

    def join(self, timeout: float | None = None) -> None:
        job = current_job()
        if self._job is not None and not self._job.is_over and job is not None:
            self._joining.append(job)
            job.wait()

    def is_alive(self) -> bool:
        return self._job is not None and not self._job.is_over

    def _run(self) -> None:
        try:
            self._target(*self._args)
        finally:
            if self._job is not None:
                self._job.is_over = True
            for job in self._joining:
                job.resume()


class VirtualLocal:
    """Stands for `threading.local`: something for each worker thread."""

    def __init__(self) -> None:
        object.__setattr__(self, "_kept", {})

    def _own(self) -> dict[str, Any]:
        job = current_job()
        kept: dict[object, dict[str, Any]] = object.__getattribute__(self, "_kept")
        return kept.setdefault(job.worker if job is not None else None, {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._own()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._own()[name] = value


class VirtualThreading:
    """Stands for the module `threading`."""

    Thread = VirtualThread
    Event = VirtualEvent
    Lock = VirtualLock
    RLock = VirtualLock
    local = VirtualLocal

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class VirtualQueue(Generic[T]):
    """Stands for `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[Job] = deque()

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._waiting:
            self._waiting.popleft().resume()

    def get(self) -> T:
        while not self._items:
            job = current_job()
            assert job is not None, "the event loop waits for a queue"
            self._waiting.append(job)
            job.wait()
        return self._items.popleft()
