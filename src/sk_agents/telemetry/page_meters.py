"""Metrics as text for Prometheus, in a registry of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sk_agents.telemetry.instruments import INSTRUMENTS, Instrument, Read


class PageMeters:
    """Every instrument is on the page from the start, at nothing, unless it has labels."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._metrics: dict[str, Any] = {one.name: self._metric(one) for one in INSTRUMENTS}

    def record(self, instrument: Instrument, value: float, *labels: str) -> None:
        metric = self._metrics[instrument.name]
        if labels:
            metric = metric.labels(*labels)
        if instrument.kind == "histogram":
            metric.observe(value)
        else:
            metric.inc(value)

    def watch(self, read: Read) -> None:
        self._registry.register(_Readings(read))

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def _metric(self, instrument: Instrument) -> Counter | Gauge | Histogram:
        name, about, labels = instrument.page_name, instrument.about, _page_labels(instrument)
        match instrument.kind:
            case "counter":
                return Counter(name, about, labels, registry=self._registry)
            case "gauge":
                return Gauge(name, about, labels, registry=self._registry)
            case "histogram":
                buckets = instrument.buckets
                return Histogram(name, about, labels, registry=self._registry, buckets=buckets)


def _page_labels(instrument: Instrument) -> list[str]:
    return [label.replace(".", "_") for label in instrument.labels]


class _Readings(Collector):
    def __init__(self, read: Read) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """Nothing: the registry would otherwise read the values before there are any."""
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for instrument, labels, value in self._read():
            family = families.get(instrument.name)
            if family is None:
                kind = CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily
                labels_on_page = _page_labels(instrument)
                family = kind(instrument.page_name, instrument.about, labels=labels_on_page)
                families[instrument.name] = family
            family.add_metric(list(labels), value)
        yield from families.values()
