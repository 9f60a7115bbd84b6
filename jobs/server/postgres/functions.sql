-- The functions of pg_catalog that clients call. What a lake does not have is NULL, and whoever sees a table may read it.
-- Aliases begin with _: DuckDB would take an argument `c.oid` for the column of a `c` in here.
CREATE SCHEMA pgf;
CREATE MACRO pgf.version() AS (SELECT 'PostgreSQL ' || setting FROM pgc.pg_settings WHERE name = 'server_version');
CREATE MACRO pgf.current_database() AS (SELECT database FROM pgc.session);
CREATE MACRO pgf.current_catalog() AS pgf.current_database();
CREATE MACRO pgf.current_user() AS (SELECT role FROM pgc.session);
CREATE MACRO pgf.session_user() AS pgf.current_user();
CREATE MACRO pgf.current_role() AS pgf.current_user();
CREATE MACRO pgf.current_schema() AS 'public';
CREATE MACRO pgf.current_schemas(implicit) AS CASE WHEN implicit THEN ['pg_catalog', 'public'] ELSE ['public'] END;
CREATE MACRO pgf.current_setting(asked) AS (SELECT setting FROM pgc.pg_settings WHERE lower(name) = lower(asked)),
    (asked, missing_ok) AS (SELECT setting FROM pgc.pg_settings WHERE lower(name) = lower(asked));
CREATE MACRO pgf.set_config(name, value, is_local) AS value;
CREATE MACRO pgf.pg_backend_pid() AS 0;
CREATE MACRO pgf.pg_is_in_recovery() AS false;
CREATE MACRO pgf.pg_my_temp_schema() AS 0;
CREATE MACRO pgf.pg_is_other_temp_schema(schema) AS false;
CREATE MACRO pgf.pg_advisory_unlock_all() AS NULL::TEXT;
CREATE MACRO pgf.inet_server_addr() AS NULL::TEXT;
CREATE MACRO pgf.inet_server_port() AS NULL::INT;
CREATE MACRO pgf.pg_encoding_to_char(encoding) AS 'UTF8';
CREATE MACRO pgf.pg_char_to_encoding(name) AS 6;
CREATE MACRO pgf.pg_get_userbyid(role) AS 'strandline';
CREATE MACRO pgf.pg_table_is_visible(relation) AS true;
CREATE MACRO pgf.pg_type_is_visible(type) AS true;
CREATE MACRO pgf.pg_collation_is_visible(collation_oid) AS true;
CREATE MACRO pgf.pg_function_is_visible(function) AS true;
CREATE MACRO pgf.pg_conversion_is_visible(conversion) AS true;
CREATE MACRO pgf.pg_operator_is_visible(operator) AS true;
CREATE MACRO pgf.pg_opclass_is_visible(class) AS true;
CREATE MACRO pgf.pg_opfamily_is_visible(family) AS true;
CREATE MACRO pgf.pg_statistics_obj_is_visible(object) AS true;
CREATE MACRO pgf.pg_ts_config_is_visible(config) AS true;
CREATE MACRO pgf.pg_ts_dict_is_visible(dictionary) AS true;
CREATE MACRO pgf.pg_ts_parser_is_visible(parser) AS true;
CREATE MACRO pgf.pg_ts_template_is_visible(template) AS true;
CREATE MACRO pgf.pg_relation_is_publishable(relation) AS false;
CREATE MACRO pgf.pg_relation_is_updatable(relation, with_triggers) AS 0;
CREATE MACRO pgf.pg_column_is_updatable(relation, attribute, with_triggers) AS false;
CREATE MACRO pgf.pg_has_role(role, privilege) AS true, (user_name, role, privilege) AS true;
CREATE MACRO pgf.has_function_privilege(function, privilege) AS true, (role, function, privilege) AS true;
CREATE MACRO pgf.has_type_privilege(type, privilege) AS true, (role, type, privilege) AS true;
CREATE MACRO pgf.has_sequence_privilege(relation, privilege) AS false, (role, relation, privilege) AS false;
CREATE MACRO pgf.pg_postmaster_start_time() AS now();
CREATE MACRO pgf.pg_conf_load_time() AS now();
CREATE MACRO pgf.txid_current() AS 0;
CREATE MACRO pgf.age(transaction) AS 0;
CREATE MACRO pgf.has_schema_privilege(schema, privilege) AS true, (role, schema, privilege) AS true;
CREATE MACRO pgf.has_database_privilege(database, privilege) AS true, (role, database, privilege) AS true;
CREATE MACRO pgf.has_table_privilege(relation, privilege) AS upper(privilege) = 'SELECT',
    (role, relation, privilege) AS upper(privilege) = 'SELECT';
CREATE MACRO pgf.has_any_column_privilege(relation, privilege) AS upper(privilege) = 'SELECT',
    (role, relation, privilege) AS upper(privilege) = 'SELECT';
CREATE MACRO pgf.has_column_privilege(relation, attribute, privilege) AS upper(privilege) = 'SELECT',
    (role, relation, attribute, privilege) AS upper(privilege) = 'SELECT';
CREATE MACRO pgf.obj_description(object) AS NULL::TEXT, (object, catalog) AS NULL::TEXT;
CREATE MACRO pgf.shobj_description(object, catalog) AS NULL::TEXT;
CREATE MACRO pgf.col_description(relation, attribute) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_expr(expression, relation) AS NULL::TEXT, (expression, relation, pretty) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_partkeydef(relation) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_serial_sequence(relation, attribute) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_statisticsobjdef_columns(object) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_function_result(function) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_function_arguments(function) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_function_identity_arguments(function) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_functiondef(function) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_ruledef(rule) AS NULL::TEXT, (rule, pretty) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_triggerdef(trigger) AS NULL::TEXT, (trigger, pretty) AS NULL::TEXT;
CREATE MACRO pgf.pg_relation_size(relation) AS NULL::BIGINT, (relation, fork) AS NULL::BIGINT;
CREATE MACRO pgf.pg_table_size(relation) AS NULL::BIGINT;
CREATE MACRO pgf.pg_total_relation_size(relation) AS NULL::BIGINT;
CREATE MACRO pgf.pg_indexes_size(relation) AS NULL::BIGINT;
CREATE MACRO pgf.pg_database_size(database) AS NULL::BIGINT;
CREATE MACRO pgf.pg_tablespace_size(tablespace) AS NULL::BIGINT;
CREATE MACRO pgf.pg_tablespace_location(tablespace) AS NULL::TEXT;
CREATE MACRO pgf.pg_stat_get_numscans(relation) AS 0;
CREATE MACRO pgf.pg_get_function_sqlbody(function) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_function_arg_default(function, number) AS NULL::TEXT;
CREATE MACRO pgf.pg_get_statisticsobjdef(object) AS NULL::TEXT;
CREATE MACRO pgf.pg_size_pretty(bytes) AS format_bytes(bytes);
CREATE MACRO pgf.quote_ident(name) AS
    CASE WHEN regexp_full_match(name, '[a-z_][a-z0-9_$]*') THEN name ELSE '"' || replace(name, '"', '""') || '"' END;
CREATE MACRO pgf.quote_literal(value) AS '''' || replace(value::TEXT, '''', ''''''') || '''';
CREATE MACRO pgf.to_regclass(name) AS
    (SELECT _c.oid FROM pgc.pg_class _c WHERE _c.relname = regexp_replace(replace(name, '"', ''), '^(\w+\.)*', ''));
CREATE MACRO pgf.regclass(name) AS coalesce(pgf.to_regclass(name), TRY_CAST(name AS BIGINT), 0);
CREATE MACRO pgf.relation_name(relation) AS
    coalesce((SELECT pgf.quote_ident(_c.relname) FROM pgc.pg_class _c WHERE _c.oid = relation), relation::TEXT);
CREATE MACRO pgf.regproc(name) AS
    (SELECT _p.oid FROM pgc.pg_proc _p WHERE _p.proname = regexp_replace(name, '^pg_catalog\.', ''));
CREATE MACRO pgf.function_name(function) AS
    coalesce((SELECT _p.proname FROM pgc.pg_proc _p WHERE _p.oid = function), '-');
CREATE MACRO pgf.schema_name(schema) AS
    coalesce((SELECT _n.nspname FROM pgc.pg_namespace _n WHERE _n.oid = schema), schema::TEXT);
CREATE MACRO pgf.to_regtype(name) AS
    (SELECT _y.oid FROM pgc.pg_type _y WHERE _y.typname = name OR _y.shown = name LIMIT 1);
CREATE MACRO pgf.format_type(type, modifier) AS (
    SELECT CASE WHEN _y.oid = 1700 AND modifier > 4
        THEN 'numeric(' || ((modifier - 4) // 65536) || ',' || ((modifier - 4) % 65536) || ')' ELSE _y.shown END
    FROM pgc.pg_type _y WHERE _y.oid = type);
CREATE MACRO pgf.pg_get_viewdef(asked) AS (SELECT sql FROM pgc.definitions WHERE relation = asked),
    (asked, pretty) AS (SELECT sql FROM pgc.definitions WHERE relation = asked);
CREATE MACRO pgf.key_columns(asked) AS (
    SELECT string_agg(pgf.quote_ident(_a.attname), ', ' ORDER BY _a.attnum)
    FROM pgc.pg_attribute _a WHERE _a.attrelid = asked);
CREATE MACRO pgf.index_definition(asked) AS (
    SELECT 'CREATE UNIQUE INDEX ' || pgf.relation_name(_x.indexrelid) || ' ON public.' || pgf.relation_name(_x.indrelid)
        || ' USING btree (' || pgf.key_columns(_x.indexrelid) || ')'
    FROM pgc.pg_index _x WHERE _x.indexrelid = asked);
CREATE MACRO pgf.pg_get_indexdef(asked) AS pgf.index_definition(asked),
    (asked, number, pretty) AS CASE WHEN number = 0 THEN pgf.index_definition(asked) ELSE (
        SELECT _a.attname FROM pgc.pg_attribute _a WHERE _a.attrelid = asked AND _a.attnum = number) END;
CREATE MACRO pgf.key_definition(constraint_oid) AS (
    SELECT 'PRIMARY KEY (' || pgf.key_columns(_n.conindid) || ')' FROM pgc.pg_constraint _n WHERE _n.oid = constraint_oid);
CREATE MACRO pgf.pg_get_constraintdef(constraint_oid) AS pgf.key_definition(constraint_oid),
    (constraint_oid, pretty) AS pgf.key_definition(constraint_oid);
CREATE MACRO pgf._pg_expandarray(elements) AS unnest([{'x': elements[n], 'n': n} FOR n IN range(1, len(elements) + 1)]);
CREATE MACRO pgf.generate_subscripts(elements, dimension) AS unnest(range(1, len(elements) + 1));
CREATE MACRO pgf.array_remove(elements, element) AS list_filter(elements, lambda _e: _e IS DISTINCT FROM element);
CREATE MACRO pgf.array_ndims(elements) AS CASE WHEN len(elements) > 0 THEN 1 END;
CREATE MACRO pgf.array_dims(elements) AS CASE WHEN len(elements) > 0 THEN '[1:' || len(elements) || ']' END;
CREATE MACRO pgf.parse_ident(name) AS
    list_transform(string_split(name, '.'), lambda _n: CASE WHEN _n LIKE '"%"' THEN _n[2:-2] ELSE lower(_n) END);
CREATE MACRO pgf.aclexplode(acl) AS unnest(
    [{'grantor': 10::BIGINT, 'grantee': 0::BIGINT, 'privilege_type': 'SELECT', 'is_grantable': false}]);
CREATE MACRO pgf.pg_get_keywords() AS TABLE SELECT keyword_name AS word, 'U' AS catcode, keyword_category AS catdesc
    FROM duckdb_keywords() WHERE keyword_category = 'reserved';
CREATE MACRO pgf.array_upper(elements, dimension) AS nullif(len(elements), 0);
CREATE MACRO pgf.array_lower(elements, dimension) AS CASE WHEN len(elements) > 0 THEN 1 END;
CREATE MACRO pgf.array_length(elements, dimension) AS nullif(len(elements), 0);
CREATE MACRO pgf.array_to_string(elements, separator) AS array_to_string(elements, separator),
    (elements, separator, missing) AS array_to_string([coalesce(each, missing) FOR each IN elements], separator);
