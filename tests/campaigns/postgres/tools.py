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
    "DuckDB: version": "SELECT version(), (SELECT COUNT(*) FROM pg_settings WHERE name LIKE 'rds%')",
    "DuckDB: schemas": "SELECT oid, nspname FROM pg_namespace ORDER BY oid;",
    "DuckDB: tables": """SELECT pg_namespace.oid AS namespace_id, relname, relpages, attname,
            pg_type.typname type_name, atttypmod type_modifier, pg_attribute.attndims ndim, attnum,
            pg_attribute.attnotnull AS notnull, NULL constraint_id, NULL constraint_type, NULL constraint_key,
            type_ns.nspname AS type_schema, col_desc.description AS column_comment,
            tbl_desc.description AS table_comment
        FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid
        JOIN pg_attribute ON pg_class.oid=pg_attribute.attrelid JOIN pg_type ON atttypid=pg_type.oid
        JOIN pg_namespace type_ns ON pg_type.typnamespace = type_ns.oid
        LEFT JOIN pg_description col_desc ON col_desc.objoid=pg_class.oid AND col_desc.objsubid=pg_attribute.attnum
        LEFT JOIN pg_description tbl_desc ON tbl_desc.objoid=pg_class.oid AND tbl_desc.objsubid=0
        WHERE attnum > 0 AND relkind IN ('r', 'v', 'm', 'f', 'p') UNION ALL
        SELECT pg_namespace.oid AS namespace_id, relname, NULL relpages, NULL attname, NULL type_name,
            NULL type_modifier, NULL ndim, NULL attnum, NULL AS notnull, pg_constraint.oid AS constraint_id,
            contype AS constraint_type, conkey AS constraint_key, NULL AS type_schema, NULL AS column_comment,
            NULL AS table_comment
        FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid
        JOIN pg_constraint ON (pg_class.oid=pg_constraint.conrelid)
        WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND contype IN ('p', 'u')
        ORDER BY namespace_id, relname, attnum, constraint_id;""",
    "DuckDB: enums": """SELECT n.oid, enumtypid, typname, enumlabel FROM pg_enum e JOIN pg_type t ON e.enumtypid = t.oid
        JOIN pg_namespace AS n ON (typnamespace=n.oid) ORDER BY n.oid, enumtypid, enumsortorder;""",
    "DuckDB: composites": """SELECT n.oid, t.typrelid AS id, t.typname as type, pg_attribute.attname, sub_type.typname,
            sub_type_ns.nspname AS sub_type_schema
        FROM pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        JOIN pg_class ON pg_class.oid = t.typrelid JOIN pg_attribute ON attrelid=t.typrelid
        JOIN pg_type sub_type ON (pg_attribute.atttypid=sub_type.oid)
        JOIN pg_catalog.pg_namespace sub_type_ns ON sub_type_ns.oid = sub_type.typnamespace
        WHERE pg_class.relkind IN ('c', 'r', 'v', 'm', 'f', 'p') AND t.typtype='c' AND pg_attribute.attnum > 0
        AND NOT pg_attribute.attisdropped ORDER BY n.oid, t.oid, attrelid, attnum;""",
    "DuckDB: indexes": """SELECT pg_namespace.oid, tablename, indexname FROM pg_indexes
        JOIN pg_namespace ON (schemaname=nspname) ORDER BY pg_namespace.oid;""",
    "Metabase: foreign keys": """SELECT fk_ns.nspname AS "fk-table-schema", fk_table.relname AS "fk-table-name",
        fk_column.attname AS "fk-column-name", pk_ns.nspname AS "pk-table-schema", pk_table.relname AS "pk-table-name",
        pk_column.attname AS "pk-column-name" FROM pg_constraint AS c JOIN pg_class AS fk_table
        ON c.conrelid = fk_table.oid JOIN pg_namespace AS fk_ns ON c.connamespace = fk_ns.oid
        JOIN pg_attribute AS fk_column ON c.conrelid = fk_column.attrelid JOIN pg_class AS pk_table
        ON c.confrelid = pk_table.oid JOIN pg_namespace AS pk_ns ON pk_table.relnamespace = pk_ns.oid
        JOIN pg_attribute AS pk_column ON c.confrelid = pk_column.attrelid
        WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND c.contype = 'f'::char
        AND fk_column.attnum = ANY(c.conkey) AND pk_column.attnum = ANY(c.confkey)
        ORDER BY "fk-table-schema", "fk-table-name" """,
    "Metabase: indexes": """SELECT tmp."table-schema", tmp."table-name", TRIM(BOTH '"' FROM
        pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.pos, FALSE)) AS "field-name" FROM
        (SELECT n.nspname AS "table-schema",
        ct.relname AS "table-name", ci.oid AS ci_oid,
        (information_schema._pg_expandarray(i.indkey)).n AS pos
        FROM pg_catalog.pg_class AS ct JOIN pg_catalog.pg_namespace AS n ON ct.relnamespace = n.oid
        JOIN pg_catalog.pg_index AS i ON ct.oid = i.indrelid JOIN pg_catalog.pg_class AS ci ON ci.oid = i.indexrelid
        WHERE pg_catalog.pg_get_expr(i.indpred, i.indrelid) IS NULL
        AND n.nspname !~ '^information_schema|catalog_history|pg_') AS tmp WHERE tmp.pos = 1""",
    "Metabase: columns of materialized views": """SELECT pa.attname AS name, CASE WHEN ptn.nspname IN ('public',
        'pg_catalog') THEN FORMAT('%s', pt.typname) ELSE FORMAT('"%s"."%s"', ptn.nspname, pt.typname) END
        AS "database-type", pa.attnum - 1 AS "database-position", pn.nspname AS "table-schema",
        pc.relname AS "table-name", FALSE AS "pk?",
        NULL AS "field-comment", FALSE AS "database-required" FROM pg_catalog.pg_class AS pc
        JOIN pg_catalog.pg_namespace AS pn ON pn.oid = pc.relnamespace
        JOIN pg_catalog.pg_attribute AS pa ON pa.attrelid = pc.oid JOIN pg_catalog.pg_type AS pt ON pt.oid = pa.atttypid
        JOIN pg_catalog.pg_namespace AS ptn ON ptn.oid = pt.typnamespace
        WHERE pc.relkind = 'm' AND pa.attnum >= 1 ORDER BY "table-schema", "table-name", "database-position" """,
    "Metabase: the last 30 days": """SELECT "public"."everything"."id" FROM "public"."everything"
        WHERE ("public"."everything"."at" >= DATE_TRUNC('day', (NOW() + INTERVAL '-30 day')))
        AND ("public"."everything"."at" < DATE_TRUNC('day', NOW()))""",
    "Metabase: a day of the week": """SELECT (CAST(extract(dow from "at") AS integer) + 1) AS "at", COUNT(*) AS "count"
        FROM "public"."everything" GROUP BY (CAST(extract(dow from "at") AS integer) + 1) ORDER BY 1""",
    "Superset: by day": """SELECT DATE_TRUNC('day', at) AS at, count(*) AS count FROM public.everything
        WHERE at >= TO_TIMESTAMP('2024-04-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
        AND at < TO_TIMESTAMP('2026-04-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
        GROUP BY DATE_TRUNC('day', at) ORDER BY count DESC LIMIT 50000;""",
    "Superset: a date": "SELECT day FROM public.everything WHERE day >= TO_DATE('2024-04-01', 'YYYY-MM-DD')",
    "Superset: seconds": """SELECT DATE_TRUNC('hour', (timestamp 'epoch' + n * interval '1 second')) AS n, count(*)
        FROM public.by_town GROUP BY 1""",
    "Superset: a filter": """SELECT town AS town, sum(n) AS "SUM(n)" FROM public.by_town
        WHERE town ILIKE '%o%' AND town NOT IN ('Lima') GROUP BY town ORDER BY "SUM(n)" DESC LIMIT 100""",
    "Tableau: a table": """SELECT "by_town"."town" AS "town", SUM("by_town"."n") AS "sum:n:ok" FROM "public"."by_town"
        "by_town" GROUP BY 1""",
    "Tableau: a month": """SELECT CAST(DATE_TRUNC( 'MONTH', CAST("everything"."at" AS DATE) ) AS DATE) AS "tmn:at:ok"
        FROM "public"."everything" "everything" GROUP BY 1""",
    "psqlODBC: types": "select oid, typbasetype from pg_type where typname = 'lo'",
    "psqlODBC: tables": """select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n
        where relkind in ('r', 'v', 'm', 'f', 'p') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast',
        'pg_temp_1') and n.oid = relnamespace order by nspname, relname""",
    "psqlODBC: columns": """select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen,
        a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid),
        case t.typtype when 'd'
        then t.typbasetype else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c
        inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname like E'by\\_town'
        and n.nspname like E'public') inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0
        and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d
        on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum""",
    "psqlODBC: keys": """select ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname from
        pg_catalog.pg_attribute ta,
        pg_catalog.pg_attribute ia, pg_catalog.pg_class tc, pg_catalog.pg_index i, pg_catalog.pg_namespace n,
        pg_catalog.pg_class ic where tc.relname = 'by_town' AND n.nspname = 'public' AND tc.oid = i.indrelid
        AND n.oid = tc.relnamespace AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid
        AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped)
        AND ic.oid = i.indexrelid order by ia.attnum""",
    "Superset: schemas": "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%' ORDER BY nspname",
}
MAY_BE_EMPTY = (
    *("DBeaver: encodings", "Metabase: is it readable", "Npgsql: enums", "pgAdmin: GSS"),
    *("DuckDB: enums", "DuckDB: composites", "Metabase: foreign keys", "Metabase: the last 30 days"),
    "psqlODBC: types",
)


def main() -> None:
    told(f"queries as they send them, by psycopg {psycopg.__version__}")
    with psycopg.connect(f"postgresql://{sys.argv[1]}", autocommit=True) as session:

        def rows(sql: str) -> bool:
            return bool(session.execute(sql).fetchall())

        for name, sql in QUESTIONS.items():
            check(name, partial(rows, sql), expected=name not in MAY_BE_EMPTY)


if __name__ == "__main__":
    main()
