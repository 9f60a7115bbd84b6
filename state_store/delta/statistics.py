"""Statistics of a data file: its rows, and the smallest and largest values of some columns, from the Parquet footer.

They stand in the action that adds the file, so that a reader of a few keys skips it unread. By Delta's protocol numbers
are written as they are, dates and timestamps as ISO text, the latter rounded outwards to milliseconds.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.commits import Marks
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from strandline.state_store.commits import CommitRecord


# A bound must be the value itself, so a long one is left out: it would make every log entry as long.
_LONGEST_TEXT: Final = 128
_MILLISECOND: Final = timedelta(milliseconds=1)

_ROWS_FIRST: Final = re.compile(r'\{"numRecords":(\d+),"minValues":\{.*\}\Z', re.DOTALL)

_OF_COLUMNS: Final = frozenset({"minValues", "maxValues", "nullCount"})

Predicate = Mapping[str, Collection[int] | Collection[str]]
"""{column: the values it may have}, all of one type; joined with AND."""


def statistics(footer: pq.FileMetaData, columns: Sequence[str]) -> str:
    """The `stats` of an `add` action, as JSON text.

    Args:
        columns: names of stored columns, `__state.<field>` for a field of that struct. One whose values have no order
            in the protocol, or no bounds in the footer, is left out.
    """
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    places = _places(footer)
    for column in columns:
        bounds = _bounds(footer, places[column]) if column in places else None
        if bounds is not None:
            for kept, value in zip((smallest, largest, nulls), bounds, strict=True):
                if value is not None:
                    _put(kept, column, value)
    text = {"numRecords": footer.num_rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls}
    return json.dumps(text, separators=(",", ":"))


def row_count(action: Mapping[str, Any]) -> int:
    """The rows of a data file, deleted ones included, by its `add` action.

    Raises:
        CorruptState: the action does not say.
    """
    try:
        # Ours have it first: a table may have ten thousand files, and bounds take long to read.
        first = _ROWS_FIRST.match(action["stats"])
        return int(first[1] if first is not None else json.loads(action["stats"])["numRecords"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"the log does not say how many rows '{action.get('path')}' has") from error


def may_hold(action: Mapping[str, Any], predicate: Predicate) -> bool:
    """False if by its statistics no row of a data file meets the predicate. Those that do not read exclude nothing."""
    if not predicate or not action.get("stats"):
        return True
    try:
        stats = json.loads(action["stats"])
        lows, highs = stats.get("minValues", {}), stats.get("maxValues", {})
        for name, values in predicate.items():
            low, high = lows.get(name), highs.get(name)
            if low is not None and high is not None and not any(low <= value <= high for value in values):
                return False
    except (ValueError, TypeError, AttributeError):
        return True
    return True


_ENDS: Final = ("minValues", "maxValues")


@lru_cache(maxsize=1 << 12)
def without_nulls(stats: str) -> frozenset[str]:
    """The columns that have no NULL in a file, by the `stats` of its action: `__state.<field>` for a field of that
    struct. A column of which they do not say is left out."""
    try:
        counts = json.loads(stats).get("nullCount", {})
        plain = {name: count for name, count in counts.items() if not isinstance(count, dict)}
        fields = {f"{STATE}.{name}": count for name, count in counts.get(STATE, {}).items()}
        return frozenset(name for name, count in (plain | fields).items() if count == 0)
    except (ValueError, TypeError, AttributeError):
        return frozenset()


@lru_cache(maxsize=1 << 12)
def whole_bounds(stats: str, column: str) -> tuple[int, int] | None:
    """The smallest and largest whole number that a column has in a file, by the `stats` of its action.

    Args:
        column: `__state.<field>` for a field of that struct.

    Returns:
        None where they do not say, or the values are no whole numbers. A row may have NULL beside them.
    """
    head, _, field = column.partition(".")
    try:
        said = json.loads(stats)
        found = [said[end][head][field] if head == STATE and field else said[end][column] for end in _ENDS]
    except (ValueError, TypeError, KeyError):
        return None
    first, last = found
    return (first, last) if type(first) is int and type(last) is int else None


def unbounded(body: Mapping[str, Any]) -> dict[str, Any]:
    """An `add` action whose statistics say nothing of the columns: they leave no file out."""
    try:
        kept = {name: value for name, value in json.loads(body["stats"]).items() if name not in _OF_COLUMNS}
        return {**body, "stats": json.dumps(kept, separators=(",", ":"))}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {name: value for name, value in body.items() if name != "stats"}


def loosened(stats: str) -> str:
    """The statistics of a file of which rows were deleted: the bounds still hold, and are no longer tight."""
    return json.dumps({**json.loads(stats), "tightBounds": False}, separators=(",", ":"))


def _places(footer: pq.FileMetaData) -> dict[str, int]:
    """{path of a leaf column: its number}. A path that two have, a field `b` of `a` and a column `a.b`, is nobody's."""
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    counts = Counter(paths)
    return {path: number for number, path in enumerate(paths) if counts[path] == 1}


def _bounds(footer: pq.FileMetaData, place: int) -> tuple[Any, Any, int] | None:
    """(smallest, largest, NULLs) over the row groups; the bounds are None when all values are NULL."""
    lows, highs, nulls = [], [], 0
    for chunk in _chunks(footer, place):
        found = chunk.statistics
        if found is None or found.null_count is None:
            return None
        nulls += found.null_count
        if found.null_count == chunk.num_values:
            continue
        if not found.has_min_max:
            return None
        try:
            lows.append(found.min)
            highs.append(found.max)
        except OverflowError:  # an instant outside the years that Python has
            return None
    if not lows:
        return None, None, nulls
    low, high = _written(min(lows), upwards=False), _written(max(highs), upwards=True)
    return None if low is None or high is None else (low, high, nulls)


def _chunks(footer: pq.FileMetaData, place: int) -> Iterator[Any]:
    return (footer.row_group(number).column(place) for number in range(footer.num_row_groups))


def _written(value: Any, *, upwards: bool) -> Any:
    """A bound as the protocol writes it; None for a value that has no such form."""
    match value:
        case bool() | bytes():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST_TEXT else None
        case datetime():
            plain = value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None)
            if upwards and plain != value.replace(tzinfo=None):
                try:
                    plain += _MILLISECOND
                except OverflowError:  # the last millisecond of the year 9999
                    return None
            return f"{plain.isoformat(timespec='milliseconds')}Z"
        case date():
            return value.isoformat()
    return None


def _put(kept: dict[str, Any], column: str, value: Any) -> None:
    head, dot, field = column.partition(".")
    if dot and head == STATE:
        kept.setdefault(STATE, {})[field] = value
    else:
        kept[column] = value


# Sums over a table's files by the log: number and digest of the live rows. They must be those of the record.
#
#     add   numRecords 1,000   deletion vector of 20   tag  <digest of the 980 rows>:980@<columns>
#     add   numRecords   500                           tag  <digest of the 500 rows>:500@<columns>
#     ───────────────────────────────────────────────────────────────────────────────────────────
#     sums                                                  <digest>:1480                  = the record's digest
#
# So a checkpoint that lost an `add`, or has an older deletion vector, is noticed when a table is opened, and no row
# read of it. The tag stands for the rows of one file behind one deletion vector: it states their number, and the
# types of the columns that were hashed. Where either is another one, as after another tool's DELETE or further
# columns, it says nothing; nor does a file have one that an earlier version wrote. Then the numbers are compared.

ROWS_TAG: Final = "strandline.rows"
"""The tag of an `add` action that holds the digest of the file's live rows, and which columns were hashed."""


@dataclass(frozen=True)
class RowSums:
    """Sums over some files by their log actions: rows and digests.

    Attributes:
        rows: live ones, of the files that say how many they have.
        unsaid: files that do not say it.
        files: all of them.
        tagged: {columns that were hashed: the digest of these files' rows, and the number of files}.
        marks: which files they are, and what is said of them.
    """

    rows: int = 0
    unsaid: int = 0
    files: int = 0
    tagged: Mapping[str, tuple[Digest, int]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)

    def plus(self, body: Mapping[str, Any], times: int = 1) -> RowSums:
        """Add one more file, by its `add` action; with `times` −1, take one away."""
        live, tag = _said(body)
        tagged = self.tagged
        if tag is not None:
            digest, columns = tag
            before, files = tagged.get(columns, (Digest(), 0))
            tagged = {**tagged, columns: (before + digest if times > 0 else before - digest, files + times)}
        rows, unsaid = (self.rows, self.unsaid + times) if live is None else (self.rows + times * live, self.unsaid)
        return RowSums(rows, unsaid, self.files + times, tagged, self.marks.plus(body, times))

    def digest(self, schema_json: str) -> Digest | None:
        """The digest of the rows over the visible columns of a schema; None where some file does not say its own."""
        found, files = self.tagged.get(columns_hash(schema_json), (Digest(), 0))
        return found if files == self.files else None

    def difference(self, record: CommitRecord, schema_json: str) -> str:
        """What the log says of the rows, where it is not what the record says; empty: it is, or nobody can tell."""
        if not record.digest:
            return ""
        wanted = Digest.parse(record.digest)
        if not self.unsaid and self.rows != wanted.count:
            return f"its files have {self.rows:,} rows by the log, and {wanted.count:,} were committed"
        found = self.digest(schema_json)
        if found is not None and found != wanted:
            return f"its files have rows of the digest {found} by the log, and {wanted} was committed"
        return ""

    def proof(self, schema_json: str) -> str:
        """How far the log says what rows there are: in words."""
        if self.digest(schema_json) is not None:
            return f"{self.rows:,} rows, by the digest of each file"
        if not self.unsaid:
            return f"{self.rows:,} rows by number only: not every file has a digest of its rows in the log"
        return "nothing: not every file says in the log how many rows it has"


def rows_tag(digest: Digest, schema_json: str) -> str:
    """The tag of a file with rows of a digest.

    Args:
        schema_json: the stored columns, as Delta's `schemaString`.
    """
    return f"{digest}@{columns_hash(schema_json)}"


def tagged_digest(body: Mapping[str, Any], schema_json: str) -> Digest | None:
    """The digest of a file's live rows over the visible columns of a schema; None where its action does not say it."""
    tag = _said(body)[1]
    return tag[0] if tag is not None and tag[1] == columns_hash(schema_json) else None


@lru_cache(maxsize=1 << 10)
def columns_hash(schema_json: str) -> str:
    """A mark of the columns that a digest is over, by their types: what they are called does not count."""
    fields = json.loads(schema_json)["fields"]
    types = [each["type"] for each in fields if each["name"] != STATE]
    return f"{zlib.crc32(json.dumps(types, sort_keys=True).encode()):08x}"


def _said(body: Mapping[str, Any]) -> tuple[int | None, tuple[Digest, str] | None]:
    """The live rows of a file, and its digest with the columns that it is over, each if its action says it."""
    try:
        gone = int((body.get("deletionVector") or {}).get("cardinality", 0))
        live = row_count(body) - gone
    except (CorruptState, TypeError, ValueError):
        return None, None
    try:
        digest, _, columns = str((body.get("tags") or {})[ROWS_TAG]).partition("@")
        found = Digest.parse(digest)
    except (KeyError, TypeError, CorruptState):
        return live, None
    return live, (found, columns) if found.count == live else None
