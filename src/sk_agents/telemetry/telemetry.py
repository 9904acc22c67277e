"""What the settings ask for, put together. Nothing asked for: there is no `Telemetry` at all."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Self

from sk_agents.config.settings import Settings
from sk_agents.engine.ports import Store
from sk_agents.exceptions import ConfigurationError, StoreError
from sk_agents.redaction import Redactor, secret_values
from sk_agents.telemetry import instruments
from sk_agents.telemetry.instruments import AllMeters, Instrument, Readings
from sk_agents.telemetry.logs import SentLogs, dropped_lines
from sk_agents.telemetry.observers import RequestObserver, TelemetryObserver
from sk_agents.telemetry.spans import Spans

if TYPE_CHECKING:
    from sk_agents.telemetry.otlp import Sending
    from sk_agents.telemetry.page_meters import PageMeters

# By protocol: the packages it needs, and the extra that brings them.
NEEDED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "http": (("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), "otel"),
    "grpc": (("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc"), "otel-grpc"),
}


def build_telemetry(
    settings: Settings, models: Mapping[str, str], addresses: Mapping[str, str] | None = None
) -> Telemetry | None:
    """What is to be opened; `None` if no setting asks for any of it. `models` and `addresses` are
    those of each agent.

    Raises:
        ConfigurationError: traces are to be sent and the packages for it are not installed.
    """
    if settings.telemetry_enabled:
        refuse_missing_packages(settings.otel_protocol)
    asked = (settings.telemetry_enabled, settings.metrics_enabled, settings.log_format == "json")
    return Telemetry(settings, models, addresses or {}) if any(asked) else None


def refuse_missing_packages(protocol: str) -> None:
    packages, extra = NEEDED[protocol]
    for package in packages:
        # It raises if the package around this one is not there.
        with suppress(ModuleNotFoundError):
            if find_spec(package) is not None:
                continue
        raise ConfigurationError(
            f"TA_TELEMETRY_ENABLED: {package} is not installed: pip install 'teal-agents[{extra}]'"
        )


class Telemetry:
    """Entered before everything it watches, so that nothing is missed at the end.

    `observer` is for the engines, `requests` for the server. What they record before it is entered
    and after it is left is not sent.
    """

    def __init__(
        self, settings: Settings, models: Mapping[str, str], addresses: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._meters = AllMeters()
        self._spans = Spans()
        self._page: PageMeters | None = None
        self._sending: Sending | None = None
        self._sent_logs: SentLogs | None = None
        if settings.metrics_enabled:
            # A server that shows no metrics saves importing what makes the page.
            from sk_agents.telemetry.page_meters import PageMeters  # noqa: PLC0415

            self._page = PageMeters()
            self._meters.add(self._page)
        self.observer = TelemetryObserver(self._spans, self._meters, models, addresses)
        self.requests = RequestObserver(self._spans, self._meters)
        self._meters.watch(dropped_lines)

    @property
    def page(self) -> Callable[[], bytes] | None:
        """Makes the page of metrics; `None` if there is to be none."""
        return self._page.page if self._page is not None else None

    async def __aenter__(self) -> Self:
        if self._settings.telemetry_enabled:
            self._send(self._settings)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Send the last of it, bounded in time; what cannot be sent by then is lost."""
        if self._sent_logs is not None:
            logging.getLogger().removeHandler(self._sent_logs)
        if self._sending is not None:
            self._spans.send_nowhere()
            await asyncio.to_thread(self._sending.close)

    def loop_held(self, seconds: float) -> None:
        """The event loop was held up for so long."""
        self._meters.record(instruments.LOOP_HELD, seconds)

    def watch_store(self, name: str, store: Store) -> None:
        """Include an open store's numbers; `name` is what it is kept for."""
        numbers: Mapping[str, float] = {}

        def read() -> Readings:
            nonlocal numbers
            # A store is closed before telemetry, which then asks once more: the last numbers hold.
            with suppress(StoreError):
                numbers = store.metrics()
            return [(store_instrument(key), (name,), value) for key, value in numbers.items()]

        self._meters.watch(read)

    async def flush(self) -> None:
        """Send what waits."""
        if self._sending is not None:
            await asyncio.to_thread(self._sending.flush)

    def _send(self, settings: Settings) -> None:
        # It comes with an extra.
        from sk_agents.telemetry.exporters import grpc_exporters, http_exporters  # noqa: PLC0415
        from sk_agents.telemetry.otlp import Sending, SentMeters  # noqa: PLC0415

        exporters = grpc_exporters if settings.otel_protocol == "grpc" else http_exporters
        metrics, logs = settings.metrics_enabled is not False, settings.logging_enabled
        sending = Sending(exporters(settings.otel_endpoint, metrics=metrics, logs=logs))
        self._sending = sending
        self._spans.send_by(sending.tracer, sending.set_ids)
        if sending.meter is not None:
            self._meters.add(SentMeters(sending.meter))
        if sending.logs is not None:
            redactor = Redactor.of(secret_values(settings, os.environ))
            self._sent_logs = SentLogs(sending.logs, redactor)
            logging.getLogger().addHandler(self._sent_logs)


def store_instrument(key: str) -> Instrument:
    kind: Literal["counter", "gauge"] = "counter" if key.startswith("commit") else "gauge"
    about = f"What the store says of its {key.replace('_', ' ')}."
    return Instrument(f"teal.store.{key}", kind, about, ("store",))
