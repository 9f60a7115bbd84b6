"""A hundred mistakes of the first hour: what was typed, and the code, the place and the hint of the answer.

None ends in a traceback, and none is longer than a screen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli.main import app

SCREEN_LINES = 24

LAKE = """
CREATE STREAM s (id BIGINT KEY, name VARCHAR, d DECIMAL(6, 2), x DOUBLE) WITH (KAFKA_TOPIC = 't', PARTITIONS = 3);
CREATE TABLE p (id BIGINT PRIMARY KEY, name VARCHAR, n INT) WITH (KAFKA_TOPIC = 'p');
CREATE MATERIALIZED VIEW v AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
"""

CONSTANT = "correct it, or write NULL; WITH (ERRORS = 'null') gives NULL wherever an expression fails"

ON = "JOIN … ON a.x = b.x, or USING (x); CROSS JOIN makes a row of every pair"

ROUNDS = "WITH RECURSIVE z AS (SELECT … UNION SELECT … FROM z JOIN …)"
KEPT = "CREATE MATERIALIZED VIEW … WITH (RETENTION = '1 DAY', TIMESTAMP = the column of its time)"
CONSTRAINT = "leave it out: any column may be NULL, and what is expected of rows is said by EXPECT in WITH"
STATEMENTS: tuple[tuple[str, str, str | None, str | None], ...] = (
    ("SELECT * FORM s", "sql.syntax", "line 1, column 15", "did you mean FROM?"),
    ("SELECT * FROM s WEHRE id = 1", "sql.syntax", "line 1, column 23", "did you mean WHERE?"),
    ("SELECT id FROM s GRUOP BY id", "sql.syntax", "line 1, column 24", "did you mean GROUP?"),
    ("SELCT * FROM s", "sql.syntax", "line 1, column 1", "did you mean SELECT?"),
    ("SELECT nme FROM s", "sql.unknown_name", "line 1, column 8", "did you mean 'name'?"),
    ("SELECT * FROM ss", "sql.unknown_name", "line 1, column 15", "did you mean 's'?"),
    ("SELECT * FROM s WHERE", "sql.syntax", "line 1, column 17", None),
    ("SELECT * FROM s WHERE id = 1 ORDER", "sql.syntax", "line 1, column 30", None),
    ("SELECT id AS FROM s", "sql.syntax", "line 1, column 19", None),
    ('SELECT id AS "" FROM s', "sql.syntax", "line 1, column 14", "name it; a text stands in single quotes: ''"),
    (
        'CREATE TABLE "" (id INT PRIMARY KEY)',
        "sql.syntax",
        "line 1, column 14",
        "name it; a text stands in single quotes: ''",
    ),
    ("SELECT COUNT(* FROM s", "sql.syntax", "line 1, column 16", None),
    (
        "SELECT 'x FROM s",
        "sql.syntax",
        "line 1, column 17",
        "close it; a quote inside a string is written twice: 'it''s'",
    ),
    ("SELECT SUMM(id) FROM s", "sql.unknown_name", "line 1, column 8", "did you mean 'SUM'?"),
    ("SELECT id FROM s, p", "sql.invalid_query", "line 1, column 8", "write s.id or p.id"),
    ("SELECT * FROM s WHERE id = 'x'", "sql.type_mismatch", "line 1, column 23", "convert one with CAST(… AS …)"),
    ('SELECT * FROM s WHERE name = "x"', "sql.type_mismatch", "line 1, column 23", "convert one with CAST(… AS …)"),
    ("SELECT * FROM s WHERE name LIKE 3", "sql.type_mismatch", "line 1, column 23", None),
    ("SELECT id + name FROM s", "sql.type_mismatch", "line 1, column 8", "convert with CAST(… AS …)"),
    ("SELECT UPPER(id) AS u FROM s", "sql.type_mismatch", "line 1, column 8", "CAST(… AS VARCHAR)"),
    ("SELECT SUBSTRING(name) AS u FROM s", "sql.type_mismatch", "line 1, column 8", None),
    ("SELECT SUM(id, id) AS u FROM s", "sql.type_mismatch", "line 1, column 8", "SUM(column)"),
    ("SELECT a.id FROM s", "sql.unknown_name", "line 1, column 8", "known: s"),
    ("SELECT * FROM s JOIN p ON s.id = p.idd", "sql.unknown_name", "line 1, column 34", "did you mean 'id'?"),
    (
        "SELECT * FROM s t JOIN p t ON t.id = t.id",
        "sql.invalid_query",
        "line 1, column 24",
        "give each a name of its own: p AS other",
    ),
    (
        "SELECT * FROM s ORDER BY nope",
        "sql.unknown_name",
        "line 1, column 26",
        "known: d, id, name, rowoffset, rowpartition, rowtime, x",
    ),
    ("SELECT * FROM s LIMIT x", "sql.syntax", "line 1, column 23", None),
    ("SELECT * FROM (SELECT * FROM s", "sql.syntax", "line 1, column 30", None),
    ("SELECT CASE WHEN id THEN 1 END AS c FROM s", "sql.type_mismatch", "line 1, column 18", None),
    (
        "SELECT id FROM s UNION SELECT name FROM s",
        "sql.type_mismatch",
        "line 1, column 8",
        "convert one with CAST(… AS …)",
    ),
    ("SELECT id FROM s UNION SELECT id, name FROM s", "sql.invalid_query", "line 1, column 8", None),
    (
        "SELECT CAST(id AS NUMBER) AS c FROM s",
        "sql.unknown_name",
        "line 1, column 13",
        "DECIMAL(38, 9), or as many digits as you need; BIGINT, DOUBLE",
    ),
    ("SELECT id[1] AS c FROM s", "sql.type_mismatch", "line 1, column 8", "a STRUCT's fields: column->field"),
    ("SELECT id->a AS c FROM s", "sql.type_mismatch", "line 1, column 8", None),
    (
        "SELECT id FROM s GROUP BY name",
        "sql.invalid_query",
        "line 1, column 8",
        "add it to GROUP BY, or say which of its values: LATEST_BY_OFFSET(id)",
    ),
    (
        "SELECT COUNT(*) AS n FROM s WHERE COUNT(*) > 1",
        "sql.invalid_query",
        "line 1, column 35",
        "aggregates belong into the SELECT list or HAVING of a query with GROUP BY, and not into each other",
    ),
    ("SELECT DATE '2024-02-30' = '2024-02-30' AS c", "sql.type_mismatch", "line 1, column 13", "write '2024-01-31'"),
    ("SELECT * FROM s EMIT", "sql.syntax", "line 1, column 17", None),
    ("SELECT * FROM s EMIT CHANGE", "sql.syntax", "line 1, column 22", "did you mean CHANGES?"),
    ("SELECT", "sql.syntax", "line 1, column 1", None),
    ("SELECT * FROM s, UNNEST(name) AS u (c)", "sql.type_mismatch", "line 1, column 18", None),
    ("SELECT * FROM (VALUES (1), (2, 3)) AS c (a)", "sql.invalid_query", "line 1, column 24", None),
    (
        "SELECT * FROM s ASOF JOIN p ON s.id = p.id",
        "sql.invalid_query",
        "line 1, column 27",
        "ON a.key = b.key AND a.time >= b.time",
    ),
    ("SELECT * FROM TUMBLE(s)", "sql.invalid_query", "line 1, column 15", "TUMBLE(table, column, INTERVAL '1' HOUR)"),
    ("SELECT * FROM SESSION(nope, x, INTERVAL '1' HOUR)", "sql.unknown_name", "line 1, column 23", "known: p, s, v"),
    (
        "SELECT LATEST_BY_OFFSET(n) AS n FROM v",
        "sql.invalid_query",
        "line 1, column 8",
        "read a stream, or use MIN or MAX",
    ),
    (
        "SELECT TOPK(x, 2) AS c FROM s ORDER BY id",
        "sql.invalid_query",
        "line 1, column 40",
        "add it to GROUP BY, or say which of its values: LATEST_BY_OFFSET(id)",
    ),
    (
        "CREATE TABLE z AS SELECT 1 AS a",
        "sql.invalid_query",
        "line 1, column 1",
        "SELECT … FROM a stream or table; CREATE MATERIALIZED VIEW … AS holds constants",
    ),
    ("SELECT s.id FROM s JOIN p WHERE s.id = p.id", "sql.syntax", "line 1, column 27", ON),
    (
        "SELECT id FROM s WHERE id IN ()",
        "sql.invalid_query",
        "line 1, column 24",
        "no row meets it: leave it out, or write FALSE",
    ),
    (
        "SELECT COUNT(*) FROM s GROUP BY",
        "sql.invalid_query",
        "line 1, column 1",
        "GROUP BY a, b; GROUP BY () is one group of all rows",
    ),
    (
        "SELECT id FROM s WHERE name LIKE 'a' ESCAPE ''",
        "sql.invalid_query",
        "line 1, column 24",
        "LIKE '10!%' ESCAPE '!'",
    ),
    ("SELECT id FROM s WHERE name LIKE 'a!' ESCAPE '!'", "sql.invalid_query", "line 1, column 24", "write ! twice"),
    (f"SELECT {'1' * 39} AS a FROM s", "sql.invalid_query", "line 1, column 8", "1e40 is a DOUBLE"),
    ("SELECT NTILE(0) OVER (ORDER BY id) AS a FROM p", "sql.type_mismatch", "line 1, column 8", None),
    ("CREATE MATERIALIZED VIEW z AS SELECT id, MAP() AS a FROM p", "sql.invalid_query", "line 1, column 42", None),
    ("SELECT id FROM s WHERE id ~ 'a.*'", "sql.type_mismatch", "line 1, column 24", "CAST(… AS VARCHAR)"),
    (
        "SELECT id FROM s WHERE name RLIKE 'a.*'",
        "sql.syntax",
        "line 1, column 29",
        "text ~ pattern, or REGEXP_LIKE(text, pattern)",
    ),
    ("SELECT TOP 3 id FROM s", "sql.syntax", "line 1, column 12", "LIMIT n after the query"),
    ("SELECT id FROM s MINUS SELECT id FROM p", "sql.syntax", "line 1, column 24", "EXCEPT"),
    (
        "SELECT * FROM s, LATERAL (SELECT n FROM p)",
        "sql.invalid_query",
        "line 1, column 18",
        "LATERAL (SELECT …) AS name",
    ),
    (
        "WITH RECURSIVE z AS (SELECT 1 AS n UNION ALL SELECT MAX(n) FROM z) SELECT n FROM z",
        "sql.not_supported",
        "line 1, column 53",
        "in the query that reads 'z'",
    ),
    ("WITH RECURSIVE z AS (SELECT n FROM z) SELECT n FROM z", "sql.invalid_query", "line 1, column 16", ROUNDS),
    (
        "SELECT id, LAG(n) FILTER (WHERE n > 1) OVER (ORDER BY id) AS a FROM p",
        "sql.invalid_query",
        "line 1, column 12",
        None,
    ),
    ("DROP STREAM s", "sql.name_in_use", "line 1, column 1", "drop what reads it first, or say DROP … CASCADE"),
    ("DROP STREAM nope", "sql.unknown_name", "line 1, column 1", "known: p, s, v"),
    ("DROP VIEW s", "sql.not_supported", "line 1, column 1", "DROP STREAM s"),
    ("DROP TABLE s", "sql.not_supported", "line 1, column 1", "DROP STREAM s"),
    ("DROP TABLE p DELETE TOPIC", "sql.not_supported", "line 1, column 1", "leave it out"),
    ("DROP s", "sql.syntax", "line 1, column 6", None),
    ("DROP FUNCTION nope", "sql.unknown_name", "line 1, column 1", None),
    (
        "CREATE STREAM s (id INT)",
        "sql.name_taken",
        "line 1, column 1",
        "columns can be added at the end; for anything else DROP what depends on it first",
    ),
    ("CREATE STREAM z (id INTT)", "sql.unknown_name", "line 1, column 21", "did you mean 'INT' or 'BIGINT'?"),
    ("CREATE STREAM z (id INT, id INT)", "sql.invalid_query", "line 1, column 18", None),
    ('CREATE STREAM z (id INT, ID INT, "Id" INT)', "sql.invalid_query", "line 1, column 18", None),
    ("CREATE STREAM z (id INT PRIMARY KEY)", "sql.invalid_query", "line 1, column 18", "write id INT KEY"),
    (
        "CREATE TABLE z (id INT)",
        "sql.invalid_query",
        "line 1, column 1",
        "mark the column whose later events replace earlier ones: name TYPE PRIMARY KEY",
    ),
    ("CREATE TABLE z (id INT KEY)", "sql.invalid_query", "line 1, column 17", "write id INT PRIMARY KEY"),
    ("CREATE TABLE z (id INT, n INT DEFAULT 1)", "sql.not_supported", "line 1, column 31", CONSTRAINT),
    ("CREATE TABLE z (id INT PRIMARY KEY, n INT DEFAULT 1)", "sql.not_supported", "line 1, column 43", CONSTRAINT),
    ("CREATE TABLE z (id INT, PRIMARY KEY (idd))", "sql.unknown_name", "line 1, column 41", "did you mean 'id'?"),
    ("CREATE TABLE z (id INT PRIMARY KEY, PRIMARY KEY (id))", "sql.syntax", "line 1, column 52", None),
    ("SHOW COLUMNS FROM p", "sql.syntax", "line 1, column 6", "DESCRIBE name"),
    ("CREATE STREAM z (select INT)", "sql.syntax", "line 1, column 18", None),
    ("CREATE STREAM z (rowtime BIGINT)", "sql.invalid_query", "line 1, column 18", None),
    ("CREATE STREAM z ()", "sql.syntax", "line 1, column 18", None),
    ("CREATE STREAM z", "sql.invalid_query", "line 1, column 1", "write CREATE STREAM z (column TYPE, …) WITH (…)"),
    ("CREATE STREAM z (id INT", "sql.syntax", "line 1, column 21", None),
    (
        "CREATE STREAM z__log (id INT)",
        "sql.invalid_query",
        "line 1, column 1",
        "take one without _ or shared__ before it and __log, __dead_letters, __stage_1 or __insert_1 after it",
    ),
    ('CREATE STREAM "S" (id INT)', "sql.name_taken", "line 1, column 1", "DESCRIBE s shows it"),
    (
        "CREATE STREAM z (id INT) WITH (FORMAT='XML')",
        "sql.option_refused",
        "line 1, column 32",
        "use one of JSON, JSON_SR, AVRO, PROTOBUF, PROTOBUF_NOSR, DELIMITED, KAFKA",
    ),
    (
        "CREATE STREAM z (a ARRAY<ARRAY<INT>>) WITH (VALUE_FORMAT='PROTOBUF')",
        "sql.invalid_query",
        "line 1, column 1",
        "put a STRUCT around the inner one",
    ),
    (
        "CREATE STREAM z (id INT) WITH (TOPIC='t')",
        "sql.option_refused",
        "line 1, column 32",
        "did you mean 'KAFKA_TOPIC'?",
    ),
    (
        "CREATE STREAM z (id INT) WITH (KAFKA_TOPIC='a b')",
        "sql.option_refused",
        "line 1, column 32",
        "use letters, digits, . _ -",
    ),
    ("CREATE STREAM z (id INT) WITH (PARTITIONS=0)", "sql.option_refused", "line 1, column 32", None),
    ("CREATE STREAM z (id INT) WITH (PARTITIONS='many')", "sql.option_refused", "line 1, column 32", None),
    (
        "CREATE STREAM z (id INT) WITH (KAFKA_TOPIC='t', PARTITIONS=5)",
        "sql.option_refused",
        "line 1, column 49",
        "write PARTITIONS = 3, or leave it out: it is for topics that are made here",
    ),
    ("CREATE STREAM z (id INT) WITH (TIMESTAMP='nope')", "sql.unknown_name", "line 1, column 32", "known: id"),
    ("CREATE STREAM z (id INT) WITH (TIMESTAMP_FORMAT='yyyy')", "sql.option_refused", "line 1, column 32", None),
    (
        "CREATE STREAM z (id INT) WITH (VALUE_FORMAT='JSON', VALUE_FORMAT='AVRO')",
        "sql.option_refused",
        "line 1, column 53",
        None,
    ),
    (
        "CREATE STREAM z (id INT) WITH (FORMAT='JSON', VALUE_FORMAT='AVRO')",
        "sql.option_refused",
        "line 1, column 32",
        None,
    ),
    ("CREATE STREAM z (id INT) WITH (VALUE_FORMAT=JSON", "sql.syntax", "line 1, column 45", None),
    (
        "CREATE STREAM z (id INT) WITH ('sasl.jaas.config'='x')",
        "sql.option_refused",
        "line 1, column 32",
        "client options are not taken from SQL; the operator sets them in strandline.toml",
    ),
    (
        "CREATE STREAM z (id INT) WITH (EVENT_TTL='1 DAY')",
        "sql.option_refused",
        "line 1, column 32",
        "say RETENTION_MS or RETENTION_BYTES",
    ),
    ("CREATE STREAM z (id INT) WITH (RETENTION_MS='1 day')", "sql.option_refused", "line 1, column 32", None),
    ("CREATE STREAM z (id INT) WITH (RETENTION_BYTES=-2)", "sql.option_refused", "line 1, column 32", None),
    (
        "CREATE TABLE z WITH (RETENTION_MS=1000) AS SELECT id, COUNT(*) AS n FROM s GROUP BY id",
        "sql.not_supported",
        "line 1, column 22",
        "CREATE MATERIALIZED VIEW … AS",
    ),
    (
        "CREATE MATERIALIZED VIEW z WITH (TTL='1 DAY') AS SELECT id FROM s",
        "sql.option_refused",
        "line 1, column 34",
        KEPT,
    ),
    (
        "CREATE STREAM z (a ARRAY<INT>) WITH (FORMAT='DELIMITED')",
        "sql.invalid_query",
        "line 1, column 1",
        "say VALUE_FORMAT = 'JSON'",
    ),
    (
        "CREATE TABLE z AS SELECT id FROM s",
        "sql.invalid_query",
        "line 1, column 1",
        "CREATE STREAM z AS …, or add GROUP BY",
    ),
    (
        "CREATE STREAM z AS SELECT id, COUNT(*) AS n FROM s GROUP BY id",
        "sql.invalid_query",
        "line 1, column 1",
        "CREATE TABLE z AS …",
    ),
    ("CREATE MATERIALIZED VIEW z AS SELECT * FROM z", "sql.unknown_name", "line 1, column 45", "known: p, s, v"),
    (
        "CREATE MATERIALIZED VIEW z AS SELECT id, id FROM s",
        "sql.invalid_query",
        "line 1, column 42",
        "give it a name with AS",
    ),
    (
        "CREATE MATERIALIZED VIEW z AS SELECT id, COUNT(*) AS n FROM s",
        "sql.invalid_query",
        "line 1, column 38",
        "add it to GROUP BY, or say which of its values: LATEST_BY_OFFSET(id)",
    ),
    (
        "CREATE MATERIALIZED VIEW z AS SELECT COUNT(*) AS n FROM s GROUP BY nope",
        "sql.unknown_name",
        "line 1, column 68",
        "known: d, id, name, rowoffset, rowpartition, rowtime, x",
    ),
    ("CREATE MATERIALIZED VIEW z AS SELECT id, 1 / 0 AS c FROM s", "sql.invalid_query", "line 1, column 42", CONSTANT),
    (
        "CREATE MATERIALIZED VIEW z AS SELECT id, CAST('x' AS INT) AS c FROM s",
        "sql.invalid_query",
        "line 1, column 47",
        CONSTANT,
    ),
    (
        "CREATE MATERIALIZED VIEW z WITH (REFRESH='often') AS SELECT id FROM s",
        "sql.option_refused",
        "line 1, column 34",
        "use one of 'auto', 'incremental', 'full'",
    ),
    ("CREATE MATERIALIZED VIEW z (id INT)", "sql.syntax", "line 1, column 32", None),
    ("CREATE INDEX i ON s (id)", "sql.syntax", "line 1, column 8", None),
    (
        "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS 'nope:f'",
        "sql.function_refused",
        "line 1, column 1",
        'the operator allows it in strandline.toml: [functions] modules = ["nope"]',
    ),
    (
        "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE JAVA AS 'f'",
        "sql.not_supported",
        "line 1, column 47",
        "LANGUAGE PYTHON AS 'module:name'",
    ),
    ("ALTER TABLE p ADD c", "sql.syntax", "line 1, column 19", None),
    ("ALTER TABLE p ADD c INT,", "sql.syntax", "line 1, column 24", None),
    ("ALTER TABLE p ADD n INT", "sql.invalid_query", "line 1, column 19", None),
    ("ALTER TABLE p ADD c INT KEY", "sql.invalid_query", "line 1, column 19", "write ADD COLUMN c INT"),
    ("ALTER STREAM p ADD c INT", "sql.invalid_query", "line 1, column 1", "ALTER TABLE p ADD COLUMN …"),
    ("ALTER TABLE v ADD c INT", "sql.invalid_query", "line 1, column 1", "CREATE OR REPLACE … v AS SELECT …"),
    ("ALTER STREAM ss ADD c INT", "sql.unknown_name", "line 1, column 1", "did you mean 's'?"),
    (
        "ALTER STREAM s DROP COLUMN x",
        "sql.not_supported",
        "line 1, column 16",
        "columns can be added; for another change DROP it with its views, and CREATE it again: docs/evolution.md",
    ),
    (
        "ALTER STREAM s RENAME COLUMN v TO z",
        "sql.not_supported",
        "line 1, column 23",
        "CREATE VIEW … AS SELECT … AS … FROM s gives a column another name",
    ),
    (
        "CREATE STREAM s (id BIGINT KEY, name VARCHAR, d DECIMAL(6, 2)) WITH (KAFKA_TOPIC = 't')",
        "sql.name_taken",
        "line 1, column 1",
        "columns can be added at the end; for anything else DROP what depends on it first",
    ),
    (
        "TRUNCATE p",
        "sql.syntax",
        "line 1, column 1",
        "statements begin with SELECT, CREATE, INSERT, DELETE, UPDATE, ALTER, DROP, SHOW, LIST, PRINT, DESCRIBE, "
        "EXPLAIN, SET, UNSET",
    ),
    ("TERMINATE v", "sql.not_supported", "line 1, column 1", "stop the run with Ctrl-C, or DROP the view"),
    ("INSERT INTO s VALUES (1)", "sql.invalid_query", "line 1, column 1", "the columns are id, name, d, x"),
    ("INSERT INTO s (id) VALUES ('a')", "sql.type_mismatch", "line 1, column 28", None),
    ("INSERT INTO s (ids) VALUES (1)", "sql.unknown_name", "line 1, column 1", "did you mean 'id'?"),
    ("INSERT INTO s (id, id) VALUES (1, 1)", "sql.invalid_query", "line 1, column 1", None),
    ("INSERT INTO s (d) VALUES (12345)", "sql.type_mismatch", "line 1, column 27", None),
    ("INSERT INTO s (id) VALUE (1)", "sql.syntax", "line 1, column 20", "did you mean VALUES?"),
    ("INSERT s VALUES (1)", "sql.syntax", "line 1, column 8", None),
    ("INSERT INTO v (id) VALUES (1)", "sql.invalid_query", "line 1, column 1", "change what it reads: s"),
    ("INSERT INTO nope (id) VALUES (1)", "sql.unknown_name", "line 1, column 1", "known: p, s"),
    ("INSERT INTO s (id) VALUES (1 / 0)", "sql.invalid_query", "line 1, column 28", None),
    (
        "INSERT INTO s (id) VALUES (name)",
        "sql.not_supported",
        "line 1, column 28",
        "INSERT INTO … SELECT computes from other columns",
    ),
    ("DELETE FROM p", "sql.syntax", "line 1, column 13", None),
    (
        "DELETE FROM p WHERE name = 'x'",
        "sql.invalid_query",
        "line 1, column 21",
        "WHERE id = …; several keys: IN (…, …)",
    ),
    (
        "DELETE FROM s WHERE id = 1",
        "sql.invalid_query",
        "line 1, column 1",
        "INSERT INTO it an event that says what changed, or declare it as a TABLE with a PRIMARY KEY",
    ),
    ("DELETE FROM v WHERE id = 1", "sql.invalid_query", "line 1, column 1", "change what it reads: s"),
    ("UPDATE p SET id = 2 WHERE id = 1", "sql.invalid_query", "line 1, column 19", None),
    ("UPDATE p SET nn = 2 WHERE id = 1", "sql.unknown_name", "line 1, column 19", "did you mean 'n'?"),
    (
        "UPDATE p SET n = n + 1 WHERE id = 1",
        "sql.not_supported",
        "line 1, column 18",
        "INSERT INTO … SELECT computes from other columns",
    ),
    ("UPDATE p SET n = 1", "sql.syntax", "line 1, column 18", None),
    ("SHOW TABELS", "sql.syntax", "line 1, column 6", "did you mean TABLES?"),
    ("DESCRIBE nope", "sql.unknown_name", "line 1, column 1", "known: p, s, v"),
    ("DESCRIBE", "sql.syntax", "line 1, column 1", None),
    ("EXPLAIN nope", "sql.unknown_name", "line 1, column 1", "known: p, s, v"),
    ("PRINT nope", "sql.unknown_name", "line 1, column 1", "known: p, t"),
    ("SET auto.offset.reset = 'latest'", "sql.syntax", "line 1, column 5", None),
    (
        "SET 'a' = 'b'",
        "sql.option_refused",
        "line 1, column 1",
        "known: auto.offset.reset; everything else is set in strandline.toml",
    ),
    ("SET 'auto.offset.reset' = 'soon'", "sql.option_refused", "line 1, column 1", "use one of earliest, latest"),
)
"""(what was typed, code, place, hint)"""

DEEP = "+".join(["id"] * 3000)
LONG = "n" * 300

ENVIRONMENT: tuple[tuple[dict[str, str], str, str], ...] = (
    ({"STRANDLINE_LAKEE": "x"}, "settings.invalid", "did you mean STRANDLINE_LAKE?"),
    ({"STRANDLINE_KAFKA_BOOTSTRAP_SERVERS": "a:1"}, "settings.invalid", "did you mean STRANDLINE_KAFKA__BOOTSTRAP"),
    ({"STRANDLINE_CONFIG": "no.toml"}, "settings.invalid", "correct STRANDLINE_CONFIG"),
    ({"STRANDLINE_CONFIG": "broken.toml"}, "settings.invalid", "is not TOML"),
    ({"STRANDLINE_LAKE": ""}, "settings.invalid", "it is empty"),
    ({"STRANDLINE_LAKE": "a_file"}, "settings.invalid", "setting 'lake': '/"),
    ({"STRANDLINE_LAKE": "a_file"}, "settings.invalid", "is a file: a lake is a folder"),
    ({"STRANDLINE_LAKE": "ftp://host/lake"}, "settings.invalid", "is no kind of storage"),
    ({"STRANDLINE_LAKE": "/proc/lake"}, "store.storage_denied", "take another folder"),
    ({"STRANDLINE_ENGINE": "flink"}, "settings.invalid", "'auto', 'spark' or 'duckdb'"),
    ({"STRANDLINE_INGEST__MAX_ROWS_PER_EPOCH": "many"}, "settings.invalid", "ingest.max_rows_per_epoch"),
    ({"STRANDLINE_FUNCTIONS__MODULES": "geo"}, "settings.invalid", "write it as JSON"),
    ({"STRANDLINE_KAFKA__BOOTSTRAP_SERVERS": "a:1"}, "source.topics_elsewhere", "unset STRANDLINE_KAFKA__BOOTSTRAP"),
)
"""(variables, code, a part of the answer to CREATE STREAM)"""

COMMANDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("apply", "no.sql"), "'no.sql' does not exist"),
    (("apply", "folder.sql"), "is a directory"),
    (("apply", "bytes.sql"), "[sql.syntax] 'bytes.sql' is not UTF-8 text: byte 0"),
    (("apply", "second_line.sql"), "(second_line.sql, line 2, column 22)"),
    (("sql", "-f", "second_line.sql"), "(second_line.sql, line 2, column 22)"),
    (("run", "no.sql"), "there is no file 'no.sql'"),
    (("run", "nope"), "[pipeline.missing] unknown pipeline 'nope'"),
    (("run", "default", "--mode", "forever"), "'forever' is not one of 'drain'"),
    (("rebuild", "nope"), "[sql.unknown_name]"),
    (("verify", "nope"), "[sql.unknown_name]"),
    (("sql", "-e", f"CREATE STREAM {LONG} (id INT)"), "[sql.invalid_query] the name"),
    (("sql", "-e", f"CREATE STREAM z (id INT) WITH (KAFKA_TOPIC='{LONG}')"), "[sql.option_refused]"),
    (("sql", "-e", f"SELECT {'(' * 2000}1{')' * 2000} AS one"), "nested too deeply (line 1, column 1)"),
    (("sql", "-e", f"SELECT {DEEP} AS deep FROM s"), "nested too deeply (line 1, column 1)"),
    (("sql", "-e", f"CREATE MATERIALIZED VIEW z AS SELECT {DEEP} AS deep FROM s"), "nested too deeply (line 1"),
    (("sqll",), "Did you mean 'sql'?"),
    (("sql", "-e", "SELECT 1 AS one", "-f", "second_line.sql"), "give -e or -f, not both"),
)
"""(arguments, a part of the answer)"""


@pytest.fixture(scope="module", autouse=True)
def _lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One lake, which no mistake changes, in a working directory with files of all kinds."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "folder.sql").mkdir()
    (folder / "bytes.sql").write_bytes(b"\xff\xfe\x00")
    (folder / "second_line.sql").write_text("CREATE STREAM q (id INT);\nCREATE STREAM q2 (id INTT);\n")
    (folder / "broken.toml").write_text("lake = \n")
    (folder / "a_file").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
            patch.delenv(name)
        patch.setenv("STRANDLINE_LAKE", str(folder / "lake"))
        assert CliRunner().invoke(app, ["sql", "-e", LAKE]).exit_code == 0
        before = sorted([*Path("lake").rglob("*.json"), *Path("lake").rglob("*.log")])
        yield
        assert sorted([*Path("lake").rglob("*.json"), *Path("lake").rglob("*.log")]) == before


def answer(*arguments: str, env: dict[str, str] | None = None) -> str:
    """What the command says, which is an error."""
    done = CliRunner().invoke(app, arguments, env=env, catch_exceptions=False)
    said = done.stdout + done.stderr
    assert done.exit_code == 2
    assert len(said.splitlines()) <= SCREEN_LINES
    assert "Traceback" not in said
    assert "[internal]" not in said
    return said


@pytest.mark.parametrize(("typed", "code", "place", "hint"), STATEMENTS)
def test_a_statement(typed: str, code: str, place: str | None, hint: str | None) -> None:
    said = answer("sql", "-e", typed)
    assert said.startswith(f"[{code}] ")
    if place is not None:
        assert f"({place})\n" in said
    assert (f"\n  hint: {hint}\n" in said) if hint else ("hint:" not in said)


@pytest.mark.parametrize(("env", "code", "part"), ENVIRONMENT)
def test_a_setting(env: dict[str, str], code: str, part: str) -> None:
    said = answer("sql", "-e", "CREATE STREAM other (id INT)", env=env)
    assert said.startswith(f"[{code}] ")
    assert part in said


@pytest.mark.parametrize(("arguments", "part"), COMMANDS)
def test_a_command(arguments: tuple[str, ...], part: str) -> None:
    # The boxes of usage errors break lines where the terminal ends.
    assert part in " ".join(answer(*arguments).replace("│", " ").split())


def test_there_are_a_hundred() -> None:
    assert len({typed for typed, *_ in STATEMENTS}) + len(ENVIRONMENT) + len(COMMANDS) >= 100
