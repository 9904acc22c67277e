"""A process that serves: one event loop, one line when it is ready."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import uvicorn
from fastapi import FastAPI

from sk_agents.app import create_app
from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.cli.listening import CannotListen, listen
from sk_agents.cli.options import Exit
from sk_agents.cli.worker_link import Stop, WorkerLink
from sk_agents.config.agent_file import AgentFile, configured_paths, load_agent_files
from sk_agents.config.default_agents import UNTAUGHT, AgentOffer
from sk_agents.config.settings import Settings, export_environment
from sk_agents.config.store_url import store_name
from sk_agents.exceptions import (
    ConfigurationError,
    StoreBroken,
    StoreBusy,
    StoreError,
    StoreFull,
)
from sk_agents.http.caller import check_bind_address
from sk_agents.http.connections import ConnectionLimits, affordable_connections, http_protocol
from sk_agents.telemetry.logs import LineWriter, print_line
from sk_agents.telemetry.loop_watchdog import LoopWatchdog
from sk_agents.wiring import ServerParts, build_authorizer, default_offer

# An open stream is cut after this many seconds of shutting down.
GRACE_SECONDS = 10


def serve(config_paths: Sequence[Path], settings: Settings, link: WorkerLink | None = None) -> Exit:
    """Serve until a signal says stop, or the store is broken; with a `link` as one of several."""
    try:
        _serve(config_paths, settings, link)
    except StoreBroken as error:
        return _fail(Exit.STORE_BROKEN, error)
    except CannotListen as error:
        return _fail(error.code, error)
    except StoreBusy as error:
        return _fail(Exit.TRY_AGAIN, error)
    except (ConfigurationError, StoreError, StoreFull) as error:
        return _fail(Exit.BAD_CONFIGURATION, error)
    return Exit.DONE


def _fail(code: Exit, error: Exception) -> Exit:
    print_line(sys.stderr, f"teal: {error}")
    return code


def _serve(config_paths: Sequence[Path], settings: Settings, link: WorkerLink | None) -> None:
    export_environment(config_paths or configured_paths(settings.service_config))
    settings, offer = asyncio.run(served_agents(config_paths, settings))
    authorizer = build_authorizer(settings)
    check_bind_address(settings.host, authorizer, settings.allow_insecure_auth)
    app = create_app(settings, offer.files, authorizer=authorizer, workers=link)
    with link.listener if link is not None else listen(settings.host, settings.port) as listener:
        ready = ready_line(settings, app.state.parts, listener, offer)
        server = _Server(_server_config(app, settings, offer.files), ready, link)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            try:
                runner.run(_run_until_stopped(app, server, listener, link))
            except (KeyboardInterrupt, SystemExit) as ended:
                _leave(ended)


def _leave(ended: BaseException) -> NoReturn:
    """The third signal, or a plugin's own task that called `sys.exit`, has stopped the event loop
    in the middle of its work. To tidy up would wait for what ran in it, maybe for ever, and go on
    answering 503 meanwhile. What is stored is whole, as after a crash."""
    print_line(sys.stderr, f"teal: ended at once: {type(ended).__name__} stopped the event loop")
    os._exit(Exit.INTERRUPTED if isinstance(ended, KeyboardInterrupt) else Exit.FAILED)


async def served_agents(
    config_paths: Sequence[Path], settings: Settings
) -> tuple[Settings, AgentOffer]:
    """The configured agents, or the agents of this package if none is configured.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    if paths := config_paths or configured_paths(settings.service_config):
        return settings, AgentOffer(load_agent_files(paths))
    # Plugins of the package's own agents are beside their files.
    without_module = settings.model_copy(update={"plugin_module": None})
    return without_module, await default_offer(settings)


def ready_line(
    settings: Settings, parts: ServerParts, listener: socket.socket, offer: AgentOffer
) -> str:
    port = listener.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    names = ", ".join(parts.agents) or "none configured"
    facts = [
        f"teal ready at http://{host}:{port}",
        f"agents: {names}",
        f"store: {store_name(settings)}",
        f"model: {_models(parts, offer.reasons) or 'none configured'}",
    ]
    if offer.remark is not None:
        facts.append(offer.remark)
    facts.extend(
        f"{name}: {served.model} {UNTAUGHT}"
        for name, served in parts.agents.items()
        if served.is_untaught
    )
    return " · ".join(facts)


def _models(parts: ServerParts, reasons: Mapping[str, str]) -> str:
    """Each agent's model and why it has it; the model alone where all have the same."""
    models = {name: served.model for name, served in parts.agents.items()}
    if len(set(models.values())) < 2 and not reasons:
        return next(iter(models.values()), "")
    why = {name: f" ({reasons[name]})" if name in reasons else "" for name in models}
    return ", ".join(f"{name} {model}{why[name]}" for name, model in models.items())


def _server_config(app: FastAPI, settings: Settings, files: Sequence[AgentFile]) -> uvicorn.Config:
    limits = ConnectionLimits(
        connections=affordable_connections(settings.max_connections),
        write_seconds=settings.write_timeout,
    )
    return uvicorn.Config(
        app,
        http=http_protocol(limits),
        # Only these agents have a websocket, and loading the library for it takes long.
        ws="auto" if any(file.api_version.startswith("skagents/") for file in files) else "none",
        ws_max_size=settings.max_image_body_bytes,
        # We enter it, so that a store that cannot be opened is an exception, not a log line.
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class SignalFreeServer(uvicorn.Server):
    """Leaves signals to its caller: uvicorn would end the process by them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server(SignalFreeServer):
    """Prints a line when it is ready; one of several workers leaves that to their supervisor."""

    def __init__(self, config: uvicorn.Config, ready: str, link: WorkerLink | None) -> None:
        super().__init__(config)
        self._ready = ready
        self._report = link.ready if link is not None else LineWriter(sys.stdout).put

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self.should_exit:
            collect_rarely()
            self._report(self._ready)


async def _run_until_stopped(
    app: FastAPI, server: _Server, listener: socket.socket, link: WorkerLink | None
) -> None:
    """Raises StoreBroken: a supervisor has to start this program again."""
    with _stopping(app, server) as stop:
        async with AsyncExitStack() as stack:
            if link is not None:
                if (telemetry := app.state.parts.telemetry) is not None and telemetry.page:
                    link.give_metrics(telemetry.page)
                await stack.enter_async_context(link.opened(stop))
            await stack.enter_async_context(app.router.lifespan_context(app))
            if (seconds := app.state.settings.loop_held_seconds) > 0:
                telemetry = app.state.parts.telemetry
                held = telemetry.loop_held if telemetry is not None else None
                await stack.enter_async_context(LoopWatchdog(seconds, held))
            breaking = asyncio.create_task(app.state.engines.broken())
            breaking.add_done_callback(lambda _: setattr(server, "should_exit", True))
            await server.serve(sockets=[listener])
            is_broken = breaking.done()
            breaking.cancel()
    if is_broken:
        raise StoreBroken


@contextmanager
def _stopping(app: FastAPI, server: _Server) -> Iterator[Stop]:
    """The first signal hands runs over and ends streams, each with the place where to resume.

    The second does not wait for open requests. The third has its usual effect.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(*, at_once: bool) -> None:
        server.force_exit = server.force_exit or at_once
        server.should_exit = True
        if hasattr(app.state, "engines"):
            app.state.engines.drain()

    def on_signal() -> None:
        if server.should_exit:
            remove_handlers()
        stop(at_once=server.should_exit)

    def remove_handlers() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        remove_handlers()
