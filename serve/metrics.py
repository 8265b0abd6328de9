"""What a running server counts, for Prometheus. No label holds a namespace, a key or a text."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from providers.types import StoreReceipt
from serve.attended import Notes
from serve.messages import Decision, GivenInjection

NAMESPACE = "memroute"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """One server's counters, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(name, doc, labels, namespace=NAMESPACE, registry=self.registry)

        def histogram(name: str, doc: str, *labels: str) -> Histogram:
            return Histogram(name, doc, labels, namespace=NAMESPACE, registry=self.registry, buckets=SECONDS)

        def gauge(name: str, doc: str) -> Gauge:
            return Gauge(name, doc, namespace=NAMESPACE, registry=self.registry)

        self.requests = counter("requests", "Requests by route and status", "route", "status")
        self.request_seconds = histogram("request_seconds", "Time to answer, by route", "route")
        self.stage_seconds = histogram("stage_seconds", "Time of one stage of a request", "stage")
        self.decisions = counter("decisions", "Decisions", "phase", "policy", "choice")
        self.fallbacks = counter("fallbacks", "Decisions that the fallback took", "phase", "reason")
        self.invalid = counter("invalid_outputs", "Decisions of the router that were illegal", "phase")
        self.troubles = counter(
            "troubles", "Providers and routers that were late, failed or rested", "stage", "name", "reason"
        )
        self.injections = counter("injections", "Injections by phase and provider", "phase", "provider")
        self.receipts = counter("store_receipts", "Receipts by provider and status", "provider", "status")
        self.shadow = counter("shadow_decisions", "Decisions in shadow mode", "phase", "agree")
        self.chats = counter("chats", "Chats passed on, by the memory in them: some, none, off, failed", "memory")
        self.queue = gauge("queue", "Requests that wait to be worked on")
        self.sessions = gauge("open_sessions", "Sessions that are not ended")

    def decided(self, phase: str, decision: Decision) -> None:
        """Count one decision."""
        choice = decision.action or "+".join(decision.providers) or "none"
        self.decisions.labels(phase, decision.policy, choice).inc()

    def noted(self, notes: Notes) -> None:
        """Count what went wrong in one request, and how long its stages took."""
        for trouble in notes.troubles:
            self.troubles.labels(trouble.stage, trouble.name, trouble.reason).inc()
            if trouble.stage in ("begin", "in", "end"):
                self.fallbacks.labels(trouble.stage, trouble.reason).inc()
                if trouble.reason == "invalid":
                    self.invalid.labels(trouble.stage).inc()
        for stage, seconds in notes.seconds.items():
            self.stage_seconds.labels(stage).observe(seconds)

    def injected(self, injections: Iterable[GivenInjection]) -> None:
        for injection in injections:
            self.injections.labels(injection.phase, injection.provider).inc()

    def stored(self, receipts: Iterable[StoreReceipt]) -> None:
        for receipt in receipts:
            self.receipts.labels(receipt.provider, receipt.status).inc()

    def page(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)
