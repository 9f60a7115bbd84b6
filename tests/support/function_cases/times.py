"""Dates and times."""

from __future__ import annotations

import datetime as dt

EXPECTED: dict[str, object] = {
    "DATEADD(DAYS, 1, day)": dt.date(2024, 2, 1),
    "DATESUB(DAY, i, day)": dt.date(2024, 1, 24),
    "TIMEADD(MILLISECONDS, -i, CAST('00:00' AS TIME))": 86_399_993,
    "TIMESUB(HOURS, 1, clock)": 45_900_500,
    "TIMESTAMPADD(SECONDS, 2, at) > at": True,
    "UNIX_TIMESTAMP(TIMESTAMPSUB(DAYS, 1, at))": 1_706_622_300_500,
    "FROM_DAYS(UNIX_DATE(day) + 1)": dt.date(2024, 2, 1),
    "FORMAT_DATE(day, 'dd.MM.yy ''T''')": "31.01.24 T",
    "FORMAT_TIME(clock, 'HH_mm_ss_SSS')": "13_45_00_500",
    "FORMAT_TIMESTAMP(at, 'yyyy-MM-dd''T''HH:mm:ss.SSSX')": "2024-01-31T13:45:00.500Z",
    "FORMAT_TIMESTAMP(at, 'yyyy-MM-dd HH:mm', 'America/Los_Angeles')": "2024-01-31 05:45",
    "FORMAT_TIMESTAMP(at, 'HH:mm', 'Nowhere/Town')": None,
    "FORMAT_TIMESTAMP(at, 'HH:mm zzz XXX', 'America/Los_Angeles')": "05:45 PST -08:00",
    "FORMAT_DATE(day, CASE i WHEN 7 THEN 'dd/MM''T'' yy' ELSE 'MMM d' END)": "31/01T 24",
    "PARSE_DATE('2024-01-31 and more', 'yyyy-MM-dd') = day": True,
    "FORMAT_TIMESTAMP(at, 'ss.S''S''')": "00.5S",
    "PARSE_DATE('31/01/2024', 'dd/MM/yyyy') = day": True,
    "PARSE_DATE('soon', 'yyyy-MM-dd')": None,
    "PARSE_TIME('01:45:00 Pm', 'hh:mm:ss a')": 49_500_000,
    "PARSE_TIMESTAMP('2024-01-31T13:45:00.5+0000', 'yyyy-MM-dd''T''HH:mm:ss.SX') = at": True,
    "PARSE_TIMESTAMP('2024-01-31T13:45:00.500Z', 'yyyy-MM-dd''T''HH:mm:ss.SSSX') = at": True,
    "PARSE_TIME('13h45 00.5', CASE i WHEN 7 THEN 'HH''h''mm ss.S' ELSE 'HH' END) = clock": True,
    "PARSE_TIME('01:45 pm', CASE i WHEN 7 THEN 'hh:mm a' ELSE 'HH' END)": 49_500_000,
    "PARSE_DATE('31/1/2024', CASE i WHEN 7 THEN 'dd/M/yyyy' ELSE 'dd' END) = day": True,
    "PARSE_DATE('soon', CASE i WHEN 7 THEN 'dd/M/yyyy' ELSE 'dd' END)": None,
    "PARSE_TIMESTAMP('2024-01-31 05:45', 'yyyy-MM-dd HH:mm', 'America/Los_Angeles') < at": True,
    "UNIX_TIMESTAMP(CONVERT_TZ(at, 'UTC', 'America/Los_Angeles')) - UNIX_TIMESTAMP(at)": -28_800_000,
    "DATETOSTRING(1, 'yyyy-MM-dd')": "1970-01-02",
    "STRINGTODATE('1970-01-11', 'yyyy-MM-dd')": 10,
    "TIMESTAMPTOSTRING(0, 'yyyy-MM-dd HH:mm:ss')": "1970-01-01 00:00:00",
    "STRINGTOTIMESTAMP('1970-01-01 00:01', 'yyyy-MM-dd HH:mm')": 60_000,
}
