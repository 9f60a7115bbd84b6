"""Expectations of a view's rows: validated by Great Expectations at one version, and the version up to which they hold.

    commit ──> validated ──> holds: approved up to this commit        breaks: refused, and readers stay where they are

    <lake>/approvals/<table>.json

A table with blocking expectations and no approval is not read at all: a kill between a commit and its validation, a
commit by another way and an expectation that is new all come to the same, and the next refresh validates.

    rows at version N ── pandas ──> GX batch ── each expectation ──> verdict: counts, samples, GX's own rendering

GX is imported only here, and only when there is something to validate: the import takes seconds.

The Data Docs of a view: what its expectations came to at one version, as one page beside the lake.

    <lake>/data_docs/<view>.html

Great Expectations writes such pages too, but theirs ask other hosts for style and scripts, and put values of rows
into the page as they are. This one is made of the same rendered content, needs no network and runs no script.
"""

from __future__ import annotations

import hashlib
import html
import json
import sys
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.definitions import Severity
from strandline.state_store.commits import Head, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import make_folder, replace
from strandline.state_store.stored_state import members_in, sealed_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.datasource.fluent.interfaces import Batch

    from strandline.jobs.model.definitions import Expectation
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Verdict:
    """The verdict of one check of one view.

    Attributes:
        ok: None when the check could not be made; `what` is the reason then.
        what: one sentence: what was found.
        severity: of a failure.
        numbers: {label: value}, to be plotted over time: labels never change.
        markdown: the details, for people.
        hint: what to do about it.
    """

    check: str
    ok: bool | None
    what: str
    severity: Severity = "error"
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    markdown: str = ""
    hint: str = ""


_FORMAT: Final = 1


@dataclass(frozen=True)
class Approval:
    """How far a table is validated.

    Attributes:
        asked: the expectations that were validated, as `asked_of` has them.
        approved: the newest commit at which all of them held; None when none did yet.
        refused: a later commit at which one of them did not; None when there is none.
        why: what was wrong with that one.
        since: milliseconds since the epoch, when the first commit after the approved one was refused.
    """

    asked: str
    approved: TableVersion | None = None
    refused: TableVersion | None = None
    why: str = ""
    since: int | None = None

    def covers(self, head: Head, asked: str) -> bool:
        """True if these expectations were validated at that commit already."""
        last = self.refused or self.approved
        return self.asked == asked and last is not None and last.same(head.at)

    def approving(self, head: Head, asked: str) -> Approval:
        """All expectations hold at that commit."""
        return Approval(asked, approved=head.at)

    def refusing(self, head: Head, asked: str, why: str, now_ms: int) -> Approval:
        """One does not; what was approved before stays."""
        return Approval(asked, self.approved, head.at, why, self.since or now_ms)


_WITHOUT_CHECKSUM: Final = frozenset(("format", *(each.name for each in fields(Approval))))
"""Of a file that an earlier version wrote. One member more may be the checksum, under a name that damage gave it."""


def asked_of(expectations: Sequence[Expectation]) -> str:
    """Expectations as one short text that differs when they do."""
    said = json.dumps([asdict(each) for each in expectations], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def read_approval(lake: LakeLayout, table: str) -> Approval:
    """The approval of a table; an empty one when there is none.

    Raises:
        CorruptState: it does not read back.
    """
    file = lake.approval(table)
    try:
        data = file.read_bytes()
        if json.loads(data).keys() == _WITHOUT_CHECKSUM:
            return Approval("")  # of an earlier version: the next refresh validates
        body = members_in(data)
        if body.pop("format") != _FORMAT:
            raise ValueError
        approved, refused = _commit(body.pop("approved")), _commit(body.pop("refused"))
        return Approval(approved=approved, refused=refused, **body)
    except FileNotFoundError:
        return Approval("")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "remove it: the next run validates the table again"
        raise CorruptState("an approval does not read back", where=str(file), hint=hint) from error


def write_approval(lake: LakeLayout, table: str, approval: Approval) -> None:
    """Write the approval of a table.

    Raises:
        DiskFailed, StorageDenied: it could not be written.
    """
    file = lake.approval(table)
    make_folder(file.parent)
    replace(file, sealed_members({"format": _FORMAT, **asdict(approval)}))


def approved_head(lake: LakeLayout, table: str, head: Head | None) -> Head | None:
    """The head of a table as far as it is approved; None when no commit of it is.

    Args:
        head: the newest commit.

    Raises:
        VersionGone: the log no longer reaches back to it.
        CorruptState: the approval, or the commit's record, does not read back.
    """
    approved = read_approval(lake, table).approved
    if head is None or approved is None or approved.version > head.version:
        return None
    same = approved.version == head.version
    found = head if same else Head(approved.version, reader.record_at(lake.table(table), approved.version))
    return found if approved.same(found.at) else None


def _commit(body: dict[str, Any] | None) -> TableVersion | None:
    return None if body is None else TableVersion(**body)


_SAMPLES = 10
"""Rows that fail, to look at: enough to see what they have in common, and no copy of the table in Dagster's storage."""

_ONE_AT_A_TIME: Final = Lock()
"""GX keeps its present context in a variable of its module, and views are refreshed by several threads."""

_SPARK_CONNECT: Final = "pyspark.sql.connect"

# GX's own labels; a label is plotted, so it must not change.
_NUMBERS = {
    "element_count": "rows",
    "unexpected_count": "unexpected rows",
    "unexpected_percent": "unexpected percent",
    "missing_count": "missing values",
}


def validate(
    path: LakePath, expectations: Sequence[Expectation], version: int | None = None
) -> tuple[int, list[Verdict]]:
    """Validate the rows of the table at `path`, all at one version; by default its newest.

    Returns:
        The version, and a verdict for each expectation.

    Raises:
        TableMissing: there is no table.
        VersionGone, CorruptState, ForeignWrite: its rows do not read.
    """
    if version is None:
        head = reader.head(path)
        version = head.version if head is not None else 0
    rows = reader.read_rows(path, version).to_pandas()
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GX's dependencies speak to their own developers
        batch = _batch(rows)
        return version, [_validated(batch, each) for each in expectations]


@contextmanager
def _without_spark_connect() -> Iterator[None]:
    """Lets the imports of the block find no Spark Connect, which nobody here uses.

    GX looks for it, and pyspark then ends a process whose main module has no file, with exit code 0: it takes a forked
    process, or `python -c`, for its own doctests.
    """
    if _SPARK_CONNECT in sys.modules:
        yield
        return
    sys.modules[_SPARK_CONNECT] = None  # type: ignore[assignment]  # what the import system takes for "not there"
    try:
        yield
    finally:
        del sys.modules[_SPARK_CONNECT]


def _batch(rows: Any) -> Batch:
    with _without_spark_connect():
        import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_or_update_pandas("lake").add_dataframe_asset("view")
    return asset.add_batch_definition_whole_dataframe("rows").get_batch({"dataframe": rows})


def _validated(batch: Batch, expectation: Expectation) -> Verdict:
    import great_expectations as gx
    from great_expectations.expectations.registry import get_expectation_impl

    try:
        made = get_expectation_impl(expectation.type)(**expectation.arguments)
        suite = gx.ExpectationSuite(expectation.name, expectations=[made])
        options = {"result_format": "SUMMARY", "partial_unexpected_count": _SAMPLES}
        found = batch.validate(suite, result_format=options)
    except Exception as error:  # its arguments are GX's to refuse, in whatever way it does
        what = f"Great Expectations refuses it: {_first_line(error)}"
        return Verdict(expectation.name, False, what, expectation.severity)
    (result,) = found.results
    fault = _fault(result.exception_info or {})
    if fault is not None:
        return Verdict(expectation.name, False, f"it could not be evaluated: {fault}", expectation.severity)
    numbers = {
        label: result.result[name]
        for name, label in _NUMBERS.items()
        if isinstance(result.result.get(name), int | float)
    }
    return Verdict(
        expectation.name, bool(result.success), _said(result.result), expectation.severity, numbers, _rendered(found)
    )


def _said(result: Mapping[str, Any]) -> str:
    """What was seen, in a sentence."""
    if "element_count" in result:
        samples = ", ".join(repr(each) for each in result.get("partial_unexpected_list") or ())
        said = f"{result['unexpected_count']} of {result['element_count']} rows are unexpected"
        return f"{said}: {samples}" if samples else said
    return f"observed: {result.get('observed_value')}"


def _fault(info: Mapping[str, Any]) -> str | None:
    """The message of the exception that GX met; it gives one, or one for each metric."""
    nested = [info, *(each for each in info.values() if isinstance(each, dict))]
    raised = next((each for each in nested if each.get("raised_exception")), None)
    return None if raised is None else str(raised.get("exception_message")).splitlines()[0]


def _rendered(found: ExpectationSuiteValidationResult) -> str:
    """GX's own rendering as Markdown, without what it says of itself below."""
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultMarkdownPageView

    document = ValidationResultsPageRenderer(run_info_at_end=True).render(found)
    text = str(DefaultMarkdownPageView().render(document)).partition("### Info")[0]
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for at, line in enumerate(lines) if line or (at and lines[at - 1])).strip()


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content Security Policy: the page shows values of rows, and nothing in it may run or load anything."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2733 }
table { border-collapse: collapse; margin: .5rem 0 } th, td { border: 1px solid #cfd8e0; padding: .25rem .6rem }
th { background: #f1f5f8; text-align: left } section { border-left: .3rem solid; padding-left: 1rem; margin: 2rem 0 }
.passed { border-color: #2a9d5c } .warning { border-color: #d9a400 } .failed { border-color: #c8402f }
h2 { font-size: 1.1rem; margin: 0 } h2 small { font-weight: normal; color: #5b6b7a } p { margin: .3rem 0 }
"""


def write_docs(lake: LakeLayout, view: str, version: int, made: Sequence[tuple[Expectation, Verdict]]) -> None:
    """Write the page of a view, in the place of the one before.

    Raises:
        DiskFailed, StorageDenied: it could not be written.
    """
    file = lake.data_docs(view)
    make_folder(file.parent)
    replace(file, page(view, version, made).encode())


def read_docs(lake: LakeLayout, view: str) -> bytes | None:
    """The page of a view; None when its expectations were not validated yet."""
    try:
        return lake.data_docs(view).read_bytes()
    except FileNotFoundError:
        return None


def page(view: str, version: int, made: Sequence[tuple[Expectation, Verdict]]) -> str:
    """The page as HTML."""
    states = [_state(verdict) for _, verdict in made]
    counts = ", ".join(f"{states.count(name)} {name}" for name in ("passed", "warning", "failed"))
    name = html.escape(view)
    sections = "\n".join(_section(*each) for each in made)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Expectations of {name}</title>
<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}"><style>{_STYLE}</style></head>
<body><h1>Expectations of {name}</h1>
<p>Version {version}: {counts}.</p>
{sections}
</body></html>
"""


def _section(expectation: Expectation, verdict: Verdict) -> str:
    state = _state(verdict)
    follows = [name for name in ("blocking", "quarantine") if getattr(expectation, name)]
    said = ", ".join([state, *follows])
    numbers = _numbers(verdict.numbers)
    return f"""<section class="{state}"><h2>{html.escape(expectation.name)} <small>{said}</small></h2>
<p>{html.escape(verdict.what)}</p>{numbers}
{_safe(verdict.markdown)}</section>"""


def _state(verdict: Verdict) -> str:
    if verdict.ok:
        return "passed"
    return "warning" if verdict.severity == "warn" else "failed"


def _numbers(numbers: Mapping[str, int | float]) -> str:
    rows = "".join(f"<tr><th>{html.escape(label)}</th><td>{value:g}</td></tr>" for label, value in numbers.items())
    return f"<table>{rows}</table>" if rows else ""


def _safe(markdown: str) -> str:
    """Great Expectations' own rendering. HTML in it is text: it may be a value of a row."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
