"""The rounds of a run as spans of OpenTelemetry.

    round ─┬─ ingest
           └─ refresh TABLE ─┬─ plan
                             └─ maintain

A span is made when its round is over, of the times that were taken anyway, so nothing is measured twice and an epoch
costs the same with a trace. Rounds in which nothing is committed leave none. Spans are sent by a thread of the
exporter's own; what OTEL_RESOURCE_ATTRIBUTES says is on all of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.util.types import AttributeValue

    from strandline.jobs.ivm.refresh.epoch import StageResult
    from strandline.jobs.model.settings import TracingSettings
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.jobs.run.stream import PipelineStream, Round

_SERVICE: Final = "strandline"
_NANOSECONDS: Final = 1_000_000_000


class Tracing:
    """Observes the runs of one pipeline, and makes a trace of each round.

    Args:
        processor: where finished spans go.
    """

    def __init__(self, pipeline: str, processor: SpanProcessor) -> None:
        self._pipeline = pipeline
        # A provider of its own, not the process's: what else runs here has its own traces.
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: _SERVICE}))
        self._provider.add_span_processor(processor)
        self._tracer: Tracer = self._provider.get_tracer("strandline")

    def begun(self, stream: PipelineStream) -> None:
        """Do nothing: a round is the first thing to trace."""

    def beat(self, beat: Heartbeat) -> None:
        """Do nothing: metrics tell where a run stands."""

    def ended(self, error: BaseException | None) -> None:
        """The run is over: send what is left."""
        self._provider.force_flush()

    def close(self) -> None:
        """Stop sending."""
        self._provider.shutdown()

    def round(self, done: Round) -> None:
        """Make the trace of a round."""
        committed = [stage for stage in done.refreshed.stages if stage.version is not None]
        if not committed and not done.taken and not done.refreshed.failures:
            return
        about: dict[str, AttributeValue] = {
            "strandline.pipeline": self._pipeline,
            "strandline.events": sum(each.rows for each in done.taken),
            "strandline.epochs": len(committed) + len(done.taken),
        }
        if done.micro_batch is not None:
            about["strandline.micro_batch"] = done.micro_batch
        root = self._span("round", done.began, None, about)
        for name, error in done.refreshed.failures.items():
            root.add_event("failed", {"strandline.table": name, "strandline.code": error.code, "message": str(error)})
        if done.refreshed.failures:
            root.set_status(Status(StatusCode.ERROR, ", ".join(done.refreshed.failures)))
        if done.micro_batch is not None:
            taken = {f"strandline.rows.{each.table}": each.rows for each in done.taken}
            self._span("ingest", done.began, root, taken).end(_at(done.began + done.ingest_seconds))
        for stage in committed:
            self._stage(stage, root)
        root.end(_at(done.began + done.seconds))

    def _stage(self, stage: StageResult, root: Span) -> None:
        about: dict[str, AttributeValue] = {
            "strandline.table": stage.table,
            "strandline.mode": stage.mode,
            "strandline.reason": str(stage.reason),
            "strandline.version": stage.version or 0,
            "strandline.rows.inserted": stage.inserted,
            "strandline.rows.deleted": stage.deleted,
        }
        refresh = self._span(f"refresh {stage.table}", stage.began, root, about)
        planned, ended = stage.began + stage.planned_seconds, stage.began + stage.seconds
        self._span("plan", stage.began, refresh, {}).end(_at(planned))
        self._span("maintain", planned, refresh, {}).end(_at(ended))
        refresh.end(_at(ended))

    def _span(self, name: str, began: float, parent: Span | None, about: Mapping[str, AttributeValue]) -> Span:
        context = None if parent is None else set_span_in_context(parent)
        return self._tracer.start_span(name, context, attributes=dict(about), start_time=_at(began))


def _at(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)


@contextmanager
def tracing(settings: TracingSettings, pipeline: str) -> Iterator[Tracing]:
    """Trace to the collector of the settings while the body runs; what it does not take is dropped, and logged."""
    assert settings.endpoint is not None
    exporter = OTLPSpanExporter(endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces")
    traced = Tracing(pipeline, BatchSpanProcessor(exporter))
    try:
        yield traced
    finally:
        traced.close()
