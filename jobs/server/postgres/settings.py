"""The settings of a session: what SET changes, SHOW shows, and the client is told at the beginning.

What an answer reflects is among them, so that any client can ask: `SHOW strandline.versions`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.consistent_snapshot import age_ms, instant
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.watch import staleness
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.serve.watch import Lag
    from strandline.jobs.server.state.by_key import Keyed
    from strandline.jobs.server.state.worker import Answered

SERVER_VERSION: Final = "13.0"
"""The version whose catalog is told: old enough for simple questions, new enough for every tool that is kept up."""

VERSIONS: Final = "strandline.versions"
_EVENT_TIME: Final = "strandline.event_time"
_FRESHNESS: Final = "strandline.freshness_ms"
STALENESS: Final = "strandline.staleness_ms"
BEHIND: Final = "strandline.behind_records"
_MAX_STALENESS: Final = "strandline.max_staleness"
_OURS: Final = (VERSIONS, _EVENT_TIME, _FRESHNESS, STALENESS, BEHIND)

_FIXED: Final = {
    "server_version": f"{SERVER_VERSION} (Strandline)",
    "server_version_num": "130000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "default_transaction_read_only": "on",
    "transaction_read_only": "on",
    "in_hot_standby": "off",
    "bytea_output": "hex",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "lc_ctype": "C",
}
"""Settings that stay as they are: a client that wants another value is warned, and told the one that holds."""
ISOLATION: Final = "transaction_isolation"
DEFAULT_ISOLATION: Final = "default_transaction_isolation"
_LEVELS: Final = ("serializable", "repeatable read", "read committed", "read uncommitted")
_FREE: Final = {
    _MAX_STALENESS: "",
    ISOLATION: "read committed",
    DEFAULT_ISOLATION: "read committed",
    "application_name": "",
    "search_path": '"$user", public',
    "extra_float_digits": "1",
    "client_min_messages": "notice",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "row_security": "on",
    "synchronize_seqscans": "on",
    "jit": "off",
    "xmloption": "content",
    "backslash_quote": "safe_encoding",
    "session_characteristics": "",
}
"""Settings that a client may change; all but `statement_timeout` mean nothing here."""
_TOLD: Final = (
    *("server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone", "IntervalStyle"),
    *("integer_datetimes", "standard_conforming_strings", "is_superuser", "default_transaction_read_only"),
    *("in_hot_standby", "application_name"),
)
"""PostgreSQL tells every client these."""
_SYNONYMS: Final = {
    "names": "client_encoding",
    "time zone": "TimeZone",
    "transaction isolation level": "transaction_isolation",
}
_MOST_CHARACTERS: Final = 10_000
"""Of a value: they are kept as long as the session."""
_MOST_OWN: Final = 200
_MOST_NAME: Final = 200
"""Settings, with those of names that clients make up, and the characters of such a name."""
_MILLISECONDS: Final = {"": 1, "us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*(us|ms|s|min|h|d|)")


class SessionSettings:
    """The settings of one session.

    Args:
        given: those of the startup message.
    """

    def __init__(self, user: str, given: Mapping[str, str]) -> None:
        self._values = {**_FIXED, **_FREE, **dict.fromkeys(_OURS, ""), "session_authorization": user}
        self._names = {name.lower(): name for name in self._values}
        self._first: dict[str, str] = {}
        for name, value in given.items():
            self._put(name, value)
        self._first = dict(self._values)
        self._committed: int | None = None

    def told(self) -> dict[str, str]:
        """What the client is told at the beginning."""
        return {name: self._values[name] for name in (*_TOLD, "session_authorization")}

    def all(self) -> dict[str, str]:
        """{name: value} of all."""
        return {**self._values, _FRESHNESS: self._freshness()}

    def show(self, name: str) -> tuple[str, str]:
        """A setting's name as it is spelt, and its value.

        Raises:
            Refusal: there is none of that name.
        """
        spelt = self._spelt(name)
        return spelt, self._freshness() if spelt == _FRESHNESS else self._values[spelt]

    def set(self, name: str, value: str) -> str | None:
        """Change a setting.

        Returns:
            A warning, where it stays as it is.

        Raises:
            Refusal: there is none of that name, or it is not the client's to change.
        """
        spelt = self._spelt(name)
        if spelt in _OURS:
            raise Refusal(SqlState.INVALID_VALUE, f"'{spelt}' is what the last answer reflects", hint="SHOW reads it")
        return self._put(spelt, value)

    def reset(self, name: str | None) -> None:
        """Give a setting, or all, the value of the beginning."""
        names = self._first if name is None else (self._spelt(name),)
        self._values |= {each: self._first[each] for each in names if each in self._first and each not in _OURS}

    def note(self, found: Answered | Keyed, lag: Lag | None) -> str:
        """Note what an answer reflects.

        Returns:
            The versions of its tables, as `SHOW strandline.versions` shows them.
        """
        self._values[VERSIONS] = ",".join(f"{name}={version}" for name, version in found.versions.items())
        self._values[_EVENT_TIME] = instant(found.event_time) or ""
        self._committed = found.committed
        self._values[STALENESS] = "" if lag is None else str(lag.ms)
        self._values[BEHIND] = "" if lag is None else str(lag.records)
        return self._values[VERSIONS]

    def max_staleness(self) -> float | None:
        """The seconds that an answer may be behind its topics; None: as many as there are."""
        return staleness(self._values[_MAX_STALENESS])

    def timeout_seconds(self) -> float | None:
        """What `statement_timeout` allows a query; None: as much as the server does."""
        found = _DURATION.fullmatch(self._values["statement_timeout"].strip())
        assert found is not None
        return float(found[1]) * _MILLISECONDS[found[2]] / 1000 or None

    def _freshness(self) -> str:
        age = age_ms(self._committed)
        return "" if age is None else str(age)

    def _put(self, name: str, value: str) -> str | None:
        spelt = self._names.get(name.lower(), name)
        if len(value) > _MOST_CHARACTERS:
            raise Refusal(
                SqlState.INVALID_VALUE, f"a value of '{spelt[:50]}' has {_MOST_CHARACTERS:,} characters at most"
            )
        if spelt in _FIXED:
            holds = self._values[spelt]
            same = value.strip("'\"").lower().replace("-", "") in (
                holds.lower(),
                holds.lower().split(",")[0],
                "default",
            )
            return None if same else f"'{spelt}' stays '{holds}'"
        if spelt == "statement_timeout" and not _DURATION.fullmatch(value.strip()):
            raise Refusal(SqlState.INVALID_VALUE, f"'{value}' is no duration", hint="write 500, '500ms' or '5s'")
        if spelt in (ISOLATION, DEFAULT_ISOLATION):
            value = " ".join(value.strip("'\"").lower().split())
            if value not in _LEVELS:
                hint = f"it is one of {', '.join(_LEVELS)}"
                raise Refusal(SqlState.INVALID_VALUE, f"'{value}' is no isolation level", hint=hint)
        if spelt == _MAX_STALENESS:
            try:
                staleness(value)
            except RequestRefused as error:
                raise Refusal(SqlState.INVALID_VALUE, error.message, hint="RESET takes it back") from error
        self._values[spelt] = value
        self._names[spelt.lower()] = spelt
        return None

    def _spelt(self, name: str) -> str:
        lower = _SYNONYMS.get(name.lower(), name).lower()
        if lower not in self._names and "." not in lower:
            raise Refusal(SqlState.UNKNOWN_PARAMETER, f"unknown setting '{name}'", hint="SHOW ALL lists them")
        if lower not in self._names and (len(self._names) >= _MOST_OWN or len(lower) > _MOST_NAME):
            raise Refusal(SqlState.UNKNOWN_PARAMETER, f"'{lower[:50]}' is one setting too many, or too long a name")
        self._names.setdefault(lower, lower)
        self._values.setdefault(self._names[lower], "")
        return self._names[lower]
