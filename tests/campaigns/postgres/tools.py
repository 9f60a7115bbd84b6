"""The questions of BI tools and editors, sent by psycopg: not the tools themselves, but what they stand or fall with.

Written after the queries that DBeaver, Metabase, Grafana, Npgsql, pgAdmin and Superset send: the same tables, functions
and forms.
"""

from __future__ import annotations

import sys
from functools import partial

import psycopg

from tests.campaigns.postgres.checking import check, told

SEARCH_PATH = "string_to_array(current_setting('search_path'), ',')"
IN_PATH = (
    "IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM"
    f" generate_series(array_lower({SEARCH_PATH}, 1), array_upper({SEARCH_PATH}, 1)) AS i, {SEARCH_PATH} s)"
)
QUESTIONS = {
    "DBeaver: relations": """SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS e
        FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d
        ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
        WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c')""",
    "DBeaver: columns": """SELECT c.relname, a.*, pg_catalog.pg_get_expr(f.adbin, f.adrelid, true) AS e, p.objid
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON a.attrelid = c.oid
        LEFT JOIN pg_catalog.pg_attrdef f ON a.attrelid = f.adrelid AND a.attnum = f.adnum
        LEFT JOIN pg_depend p ON p.refobjid = a.attrelid AND p.deptype = 'i' AND p.refobjsubid = a.attnum
        WHERE NOT a.attisdropped AND c.relname = 'by_town' ORDER BY a.attnum""",
    "DBeaver: keys": """SELECT c.oid, c.*, t.relname, r.relnamespace,
        CASE WHEN c.contype = 'c' THEN "substring"(pg_get_constraintdef(c.oid), 7) END AS text
        FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
        LEFT JOIN pg_catalog.pg_class r ON r.oid = c.confrelid ORDER BY c.oid""",
    "DBeaver: indexes": """SELECT i.*, i.indkey AS keys, c.relname, pg_catalog.pg_relation_size(i.indexrelid) AS bytes,
        pg_catalog.pg_stat_get_numscans(i.indexrelid) AS scans
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid""",
    "DBeaver: types": """SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base
        FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid""",
    "DBeaver: databases": "SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn ORDER BY datname",
    "DBeaver: encodings": """SELECT c.contoencoding, pg_catalog.pg_encoding_to_char(c.contoencoding)
        FROM pg_catalog.pg_conversion c GROUP BY c.contoencoding ORDER BY 2""",
    "DBeaver: functions": """SELECT p.oid, p.*, l.lanname, pg_catalog.pg_get_expr(p.proargdefaults, 0) AS defaults
        FROM pg_catalog.pg_proc p LEFT JOIN pg_catalog.pg_language l ON l.oid = p.prolang""",
    "Metabase: relations": """SELECT n.nspname AS schema, c.relname AS name, CASE c.relkind WHEN 'r' THEN 'TABLE'
        WHEN 'm' THEN 'MATERIALIZED VIEW' END AS type, NULLIF(s.n_live_tup, 0) AS rows
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
        LEFT JOIN pg_stat_user_tables AS s ON n.nspname = s.schemaname AND c.relname = s.relname
        WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'v', 'f', 'm')""",
    "Metabase: privileges": """WITH allowed AS (SELECT t.objectname, pg_catalog.has_any_column_privilege(current_user,
        '"' || replace(t.schemaname, '"', '""') || '"."' || t.objectname || '"', 'select') AS select FROM
        (SELECT schemaname, tablename AS objectname FROM pg_catalog.pg_tables UNION
        SELECT schemaname, matviewname FROM pg_catalog.pg_matviews) t
        WHERE pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')) SELECT a.* FROM allowed a""",
    "Metabase: columns": """SELECT c.column_name AS name, c.data_type AS "database-type",
        c.ordinal_position - 1 AS place, k.column_name IS NOT NULL AS "pk?",
        COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST(c.table_schema AS TEXT), CAST(c.table_name AS TEXT)) AS REGCLASS)
        AS OID), c.ordinal_position) AS comment FROM information_schema.columns AS c
        LEFT JOIN (SELECT t.table_name, u.column_name FROM information_schema.table_constraints AS t
        JOIN information_schema.key_column_usage AS u ON t.constraint_name = u.constraint_name
        WHERE t.constraint_type = 'PRIMARY KEY') AS k ON c.table_name = k.table_name AND c.column_name = k.column_name
        WHERE c.table_schema !~ '^information_schema|pg_' ORDER BY 1""",
    "Metabase: a question": """SELECT "source"."town" AS "town", SUM("source"."visits") AS "sum" FROM (SELECT
        "public"."by_town"."town" AS "town", "public"."by_town"."visits" AS "visits" FROM "public"."by_town")
        AS "source" GROUP BY "source"."town" ORDER BY "source"."town" ASC LIMIT 2000""",
    "Metabase: by hour": """SELECT DATE_TRUNC('hour', "public"."everything"."at") AS "at", COUNT(*) AS "count"
        FROM "public"."everything" GROUP BY DATE_TRUNC('hour', "public"."everything"."at")
        ORDER BY DATE_TRUNC('hour', "public"."everything"."at") ASC""",
    "Metabase: is it readable": 'SELECT true AS "_" FROM "public"."by_town" WHERE 1 <> 1 LIMIT 0',
    "Grafana: version": "SELECT current_setting('server_version_num')::int/100 AS version",
    "Grafana: tables": f"""SELECT quote_ident(table_name) AS "table" FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
        ORDER BY CASE WHEN quote_ident(table_schema) {IN_PATH} THEN 0 ELSE 1 END, 1""",
    "Grafana: columns": f"""SELECT quote_ident(column_name) AS "column", data_type AS "type"
        FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('by_town'), 1) = 2
        THEN quote_ident(table_schema) = (parse_ident('by_town'))[1]
        ELSE quote_ident(table_name) = 'by_town' AND quote_ident(table_schema) {IN_PATH} END""",
    "Grafana: a series": """SELECT floor(extract(epoch FROM at) / 300) * 300 AS "time", count(*) AS value
        FROM everything WHERE at BETWEEN '2024-05-01T00:00:00Z' AND '2024-05-02T00:00:00Z' GROUP BY 1 ORDER BY 1""",
    "Npgsql: types": """SELECT n.nspname, t.oid, t.typname, CASE WHEN p.proname = 'array_recv' THEN 'a' ELSE t.typtype
        END AS kind, CASE WHEN p.proname = 'array_recv' THEN t.typelem WHEN t.typtype = 'r' THEN r.rngsubtype END AS e
        FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace JOIN pg_proc AS p ON p.oid = t.typreceive
        LEFT JOIN pg_class AS c ON c.oid = t.typrelid LEFT JOIN pg_range AS r ON r.rngtypid = t.oid""",
    "Npgsql: enums": "SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid ORDER BY oid",
    "Power BI: tables": """select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.TABLES
        where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME""",
    "Power BI: a table": 'select "_".* from "public"."by_town" "_" limit 200',
    "pgAdmin: roles": """SELECT r.oid AS id, r.rolname AS name, CASE WHEN r.rolsuper THEN true ELSE r.rolcreatedb END
        FROM pg_catalog.pg_roles AS r WHERE rolname = current_user""",
    "pgAdmin: GSS": "SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()",
    "pgAdmin: database": """SELECT db.oid AS did, pg_encoding_to_char(db.encoding) AS encoding,
        has_database_privilege(db.oid, 'CREATE') AS may FROM pg_catalog.pg_database db
        WHERE db.datname = current_database()""",
    "Superset: schemas": "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%' ORDER BY nspname",
}
MAY_BE_EMPTY = ("DBeaver: encodings", "Metabase: is it readable", "Npgsql: enums", "pgAdmin: GSS")


def main() -> None:
    told(f"queries as they send them, by psycopg {psycopg.__version__}")
    with psycopg.connect(f"postgresql://{sys.argv[1]}", autocommit=True) as session:

        def rows(sql: str) -> bool:
            return bool(session.execute(sql).fetchall())

        for name, sql in QUESTIONS.items():
            check(name, partial(rows, sql), expected=name not in MAY_BE_EMPTY)


if __name__ == "__main__":
    main()
