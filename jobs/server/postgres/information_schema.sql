-- The views of information_schema that clients ask for. Unlike PostgreSQL's, `tables` has materialized views too: there
-- the tools that read nothing else would not find any view.
CREATE SCHEMA ischema;
CREATE VIEW ischema.schemata AS
    SELECT pgf.current_database() AS catalog_name, nspname AS schema_name, 'strandline' AS schema_owner
    FROM pgc.pg_namespace;
CREATE VIEW ischema.tables AS
    SELECT pgf.current_database() AS table_catalog, 'public' AS table_schema, relname AS table_name,
        CASE relkind WHEN 'r' THEN 'BASE TABLE' WHEN 'v' THEN 'VIEW' ELSE 'MATERIALIZED VIEW' END AS table_type,
        NULL::TEXT AS self_referencing_column_name, NULL::TEXT AS reference_generation,
        NULL::TEXT AS user_defined_type_catalog, NULL::TEXT AS user_defined_type_schema,
        NULL::TEXT AS user_defined_type_name, 'NO' AS is_insertable_into, 'NO' AS is_typed,
        NULL::TEXT AS commit_action
    FROM pgc.pg_class WHERE relkind IN ('r', 'm', 'v');
CREATE VIEW ischema.views AS
    SELECT pgf.current_database() AS table_catalog, 'public' AS table_schema, relname AS table_name,
        sql AS view_definition, 'NONE' AS check_option, 'NO' AS is_updatable, 'NO' AS is_insertable_into
    FROM pgc.pg_class JOIN pgc.definitions ON relation = oid WHERE relkind IN ('m', 'v');
CREATE VIEW ischema.columns AS
    SELECT pgf.current_database() AS table_catalog, 'public' AS table_schema, c.relname AS table_name,
        a.attname AS column_name, a.attnum::INT AS ordinal_position, NULL::TEXT AS column_default,
        CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
        CASE WHEN y.typelem > 0 THEN 'ARRAY' ELSE y.shown END AS data_type,
        NULL::INT AS character_maximum_length, NULL::INT AS character_octet_length,
        CASE y.oid WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 701 THEN 53 WHEN 1700 THEN (a.atttypmod - 4) // 65536 END
            AS numeric_precision,
        CASE WHEN y.oid = 1700 THEN 10 WHEN y.oid IN (20, 23, 701) THEN 2 END AS numeric_precision_radix,
        CASE WHEN y.oid = 1700 THEN (a.atttypmod - 4) % 65536 WHEN y.oid IN (20, 23) THEN 0 END AS numeric_scale,
        CASE WHEN y.oid IN (1083, 1184) THEN 6 END AS datetime_precision, NULL::TEXT AS interval_type,
        NULL::TEXT AS character_set_name, NULL::TEXT AS collation_name, NULL::TEXT AS domain_name,
        pgf.current_database() AS udt_catalog, 'pg_catalog' AS udt_schema, y.typname AS udt_name,
        'NO' AS is_identity, NULL::TEXT AS identity_generation, 'NEVER' AS is_generated,
        NULL::TEXT AS generation_expression, 'NO' AS is_updatable
    FROM pgc.pg_attribute a JOIN pgc.pg_class c ON c.oid = a.attrelid JOIN pgc.pg_type y ON y.oid = a.atttypid
    WHERE c.relkind IN ('r', 'm', 'v');
CREATE VIEW ischema.table_constraints AS
    SELECT pgf.current_database() AS constraint_catalog, 'public' AS constraint_schema, n.conname AS constraint_name,
        pgf.current_database() AS table_catalog, 'public' AS table_schema, c.relname AS table_name,
        'PRIMARY KEY' AS constraint_type, 'NO' AS is_deferrable, 'NO' AS initially_deferred, 'YES' AS enforced
    FROM pgc.pg_constraint n JOIN pgc.pg_class c ON c.oid = n.conrelid;
CREATE VIEW ischema.key_column_usage AS
    SELECT pgf.current_database() AS constraint_catalog, 'public' AS constraint_schema, n.conname AS constraint_name,
        pgf.current_database() AS table_catalog, 'public' AS table_schema, c.relname AS table_name,
        a.attname AS column_name, list_position(n.conkey, a.attnum)::INT AS ordinal_position
    FROM pgc.pg_constraint n JOIN pgc.pg_class c ON c.oid = n.conrelid
        JOIN pgc.pg_attribute a ON a.attrelid = c.oid AND list_contains(n.conkey, a.attnum);
CREATE VIEW ischema.referential_constraints AS
    SELECT constraint_catalog, constraint_schema, constraint_name, NULL::TEXT AS unique_constraint_schema,
        NULL::TEXT AS unique_constraint_name FROM ischema.table_constraints WHERE false;
-- Whoever may read a relation sees it, and nobody writes one by this port.
CREATE VIEW ischema.table_privileges AS
    SELECT 'strandline' AS grantor, pgf.current_user() AS grantee, table_catalog, table_schema, table_name,
        'SELECT' AS privilege_type, 'NO' AS is_grantable, 'YES' AS with_hierarchy
    FROM ischema.tables;
CREATE VIEW ischema.role_table_grants AS SELECT * FROM ischema.table_privileges;
CREATE VIEW ischema.column_privileges AS
    SELECT 'strandline' AS grantor, pgf.current_user() AS grantee, table_catalog, table_schema, table_name,
        column_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable
    FROM ischema.columns;
CREATE VIEW ischema.role_column_grants AS SELECT * FROM ischema.column_privileges;
CREATE VIEW ischema.constraint_column_usage AS
    SELECT table_catalog, table_schema, table_name, column_name, constraint_catalog, constraint_schema, constraint_name
    FROM ischema.key_column_usage;
CREATE VIEW ischema.constraint_table_usage AS
    SELECT table_catalog, table_schema, table_name, constraint_catalog, constraint_schema, constraint_name
    FROM ischema.table_constraints;
CREATE VIEW ischema.enabled_roles AS SELECT pgf.current_user() AS role_name;
CREATE VIEW ischema.applicable_roles AS
    SELECT pgf.current_user() AS grantee, pgf.current_user() AS role_name, 'NO' AS is_grantable;
CREATE VIEW ischema.character_sets AS
    SELECT NULL::TEXT AS character_set_catalog, NULL::TEXT AS character_set_schema, 'UTF8' AS character_set_name,
        'UCS' AS character_repertoire, 'UTF8' AS form_of_use, pgf.current_database() AS default_collate_catalog,
        'pg_catalog' AS default_collate_schema, 'C' AS default_collate_name;
-- Of what a lake does not have.
CREATE TABLE ischema.routines (
    specific_catalog TEXT, specific_schema TEXT, specific_name TEXT, routine_catalog TEXT, routine_schema TEXT,
    routine_name TEXT, routine_type TEXT, data_type TEXT, type_udt_name TEXT, routine_body TEXT,
    routine_definition TEXT, external_language TEXT, is_deterministic TEXT, security_type TEXT);
CREATE TABLE ischema.parameters (
    specific_catalog TEXT, specific_schema TEXT, specific_name TEXT, ordinal_position INT, parameter_mode TEXT,
    parameter_name TEXT, data_type TEXT, udt_name TEXT, parameter_default TEXT);
CREATE TABLE ischema.triggers (
    trigger_catalog TEXT, trigger_schema TEXT, trigger_name TEXT, event_manipulation TEXT, event_object_catalog TEXT,
    event_object_schema TEXT, event_object_table TEXT, action_statement TEXT, action_timing TEXT);
CREATE TABLE ischema.sequences (
    sequence_catalog TEXT, sequence_schema TEXT, sequence_name TEXT, data_type TEXT, start_value TEXT,
    minimum_value TEXT, maximum_value TEXT, increment TEXT, cycle_option TEXT);
CREATE TABLE ischema.domains (
    domain_catalog TEXT, domain_schema TEXT, domain_name TEXT, data_type TEXT, domain_default TEXT, udt_name TEXT);
CREATE TABLE ischema.check_constraints (
    constraint_catalog TEXT, constraint_schema TEXT, constraint_name TEXT, check_clause TEXT);
CREATE TABLE ischema.element_types (
    object_catalog TEXT, object_schema TEXT, object_name TEXT, object_type TEXT, collection_type_identifier TEXT,
    data_type TEXT, udt_name TEXT);
