-- The tables of pg_catalog that clients ask for, with the columns that they name (PostgreSQL 13). Those of things that a
-- lake does not have are in absent.sql.
CREATE SCHEMA pgc;
CREATE TABLE pgc.session (database TEXT, role TEXT);
CREATE TABLE pgc.pg_namespace (oid BIGINT, nspname TEXT, nspowner BIGINT DEFAULT 10, nspacl TEXT[]);
CREATE TABLE pgc.pg_class (
    oid BIGINT, relname TEXT, relnamespace BIGINT DEFAULT 2200, reltype BIGINT DEFAULT 0, reloftype BIGINT DEFAULT 0,
    relowner BIGINT DEFAULT 10, relam BIGINT DEFAULT 2, relfilenode BIGINT DEFAULT 0, reltablespace BIGINT DEFAULT 0,
    relpages INT DEFAULT 0, reltuples DOUBLE DEFAULT -1, relallvisible INT DEFAULT 0, reltoastrelid BIGINT DEFAULT 0,
    relhasindex BOOLEAN DEFAULT false, relisshared BOOLEAN DEFAULT false, relpersistence TEXT DEFAULT 'p',
    relkind TEXT, relnatts SMALLINT DEFAULT 0, relchecks SMALLINT DEFAULT 0, relhasrules BOOLEAN DEFAULT false,
    relhastriggers BOOLEAN DEFAULT false, relhassubclass BOOLEAN DEFAULT false, relrowsecurity BOOLEAN DEFAULT false,
    relforcerowsecurity BOOLEAN DEFAULT false, relispopulated BOOLEAN DEFAULT true, relreplident TEXT DEFAULT 'd',
    relispartition BOOLEAN DEFAULT false, relrewrite BIGINT DEFAULT 0, relacl TEXT[] DEFAULT ['=r/strandline'], reloptions TEXT[],
    relpartbound TEXT, relhasoids BOOLEAN DEFAULT false);
CREATE TABLE pgc.pg_attribute (
    attrelid BIGINT, attname TEXT, atttypid BIGINT, attstattarget INT DEFAULT -1, attlen SMALLINT, attnum SMALLINT,
    attndims INT DEFAULT 0, atttypmod INT DEFAULT -1, attbyval BOOLEAN DEFAULT false, attstorage TEXT DEFAULT 'p',
    attalign TEXT DEFAULT 'i', attnotnull BOOLEAN DEFAULT false, atthasdef BOOLEAN DEFAULT false,
    atthasmissing BOOLEAN DEFAULT false, attidentity TEXT DEFAULT '', attgenerated TEXT DEFAULT '',
    attisdropped BOOLEAN DEFAULT false, attislocal BOOLEAN DEFAULT true, attinhcount INT DEFAULT 0,
    attcollation BIGINT DEFAULT 0, attcompression TEXT DEFAULT '', attacl TEXT[], attoptions TEXT[],
    attfdwoptions TEXT[]);
CREATE TABLE pgc.pg_type (
    oid BIGINT, typname TEXT, typnamespace BIGINT DEFAULT 11, typowner BIGINT DEFAULT 10, typlen SMALLINT,
    typbyval BOOLEAN DEFAULT false, typtype TEXT DEFAULT 'b', typcategory TEXT, typispreferred BOOLEAN DEFAULT false,
    typisdefined BOOLEAN DEFAULT true, typdelim TEXT DEFAULT ',', typrelid BIGINT DEFAULT 0, typelem BIGINT DEFAULT 0,
    typarray BIGINT DEFAULT 0, typinput BIGINT, typoutput BIGINT, typreceive BIGINT, typsend BIGINT,
    typnotnull BOOLEAN DEFAULT false, typbasetype BIGINT DEFAULT 0, typtypmod INT DEFAULT -1, typndims INT DEFAULT 0,
    typcollation BIGINT DEFAULT 0, typdefault TEXT, typacl TEXT[], shown TEXT);
CREATE TABLE pgc.pg_index (
    indexrelid BIGINT, indrelid BIGINT, indnatts SMALLINT, indnkeyatts SMALLINT, indisunique BOOLEAN DEFAULT true,
    indisprimary BOOLEAN DEFAULT true, indisexclusion BOOLEAN DEFAULT false, indimmediate BOOLEAN DEFAULT true,
    indisclustered BOOLEAN DEFAULT false, indisvalid BOOLEAN DEFAULT true, indcheckxmin BOOLEAN DEFAULT false,
    indisready BOOLEAN DEFAULT true, indislive BOOLEAN DEFAULT true, indisreplident BOOLEAN DEFAULT false,
    indnullsnotdistinct BOOLEAN DEFAULT false, indkey SMALLINT[], indcollation BIGINT[], indclass BIGINT[],
    indoption SMALLINT[], indexprs TEXT, indpred TEXT);
CREATE TABLE pgc.pg_constraint (
    oid BIGINT, conname TEXT, connamespace BIGINT DEFAULT 2200, contype TEXT DEFAULT 'p',
    condeferrable BOOLEAN DEFAULT false, condeferred BOOLEAN DEFAULT false, convalidated BOOLEAN DEFAULT true,
    conrelid BIGINT, contypid BIGINT DEFAULT 0, conindid BIGINT, conparentid BIGINT DEFAULT 0,
    confrelid BIGINT DEFAULT 0, confupdtype TEXT DEFAULT ' ', confdeltype TEXT DEFAULT ' ',
    confmatchtype TEXT DEFAULT ' ', conislocal BOOLEAN DEFAULT true, coninhcount INT DEFAULT 0,
    connoinherit BOOLEAN DEFAULT true, conkey SMALLINT[], confkey SMALLINT[], confdelsetcols SMALLINT[], conbin TEXT);
CREATE TABLE pgc.pg_database (
    oid BIGINT, datname TEXT, datdba BIGINT DEFAULT 10, encoding INT DEFAULT 6, datcollate TEXT DEFAULT 'C',
    datctype TEXT DEFAULT 'C', datistemplate BOOLEAN DEFAULT false, datallowconn BOOLEAN DEFAULT true,
    datconnlimit INT DEFAULT -1, dattablespace BIGINT DEFAULT 1663, datacl TEXT[]);
CREATE TABLE pgc.pg_roles (
    oid BIGINT DEFAULT 10, rolname TEXT, rolsuper BOOLEAN DEFAULT false, rolinherit BOOLEAN DEFAULT true,
    rolcreaterole BOOLEAN DEFAULT false, rolcreatedb BOOLEAN DEFAULT false, rolcanlogin BOOLEAN DEFAULT true,
    rolreplication BOOLEAN DEFAULT false, rolconnlimit INT DEFAULT -1, rolpassword TEXT, rolvaliduntil TIMESTAMPTZ,
    rolbypassrls BOOLEAN DEFAULT false, rolconfig TEXT[]);
CREATE VIEW pgc.pg_authid AS FROM pgc.pg_roles;
CREATE VIEW pgc.pg_user AS
    SELECT rolname AS usename, oid AS usesysid, false AS usecreatedb, false AS usesuper, false AS userepl,
        false AS usebypassrls, NULL::TEXT AS passwd, NULL::TIMESTAMPTZ AS valuntil, NULL::TEXT[] AS useconfig
    FROM pgc.pg_roles;
CREATE TABLE pgc.pg_am (oid BIGINT, amname TEXT, amhandler TEXT, amtype TEXT);
INSERT INTO pgc.pg_am VALUES (2, 'heap', 'heap_tableam_handler', 't'), (403, 'btree', 'bthandler', 'i');
CREATE TABLE pgc.pg_tablespace (oid BIGINT, spcname TEXT, spcowner BIGINT, spcacl TEXT[], spcoptions TEXT[]);
INSERT INTO pgc.pg_tablespace VALUES (1663, 'pg_default', 10, NULL, NULL);
CREATE TABLE pgc.pg_settings (
    name TEXT, setting TEXT, unit TEXT, category TEXT DEFAULT 'Strandline', short_desc TEXT, extra_desc TEXT,
    context TEXT DEFAULT 'user', vartype TEXT DEFAULT 'string', source TEXT DEFAULT 'session', min_val TEXT,
    max_val TEXT, enumvals TEXT[], boot_val TEXT, reset_val TEXT, sourcefile TEXT, sourceline INT,
    pending_restart BOOLEAN DEFAULT false);
CREATE TABLE pgc.definitions (relation BIGINT, sql TEXT);
CREATE VIEW pgc.pg_tables AS
    SELECT 'public' AS schemaname, relname AS tablename, 'strandline' AS tableowner, NULL::TEXT AS tablespace,
        relhasindex AS hasindexes, false AS hasrules, false AS hastriggers, false AS rowsecurity
    FROM pgc.pg_class WHERE relkind = 'r';
CREATE VIEW pgc.pg_matviews AS
    SELECT 'public' AS schemaname, relname AS matviewname, 'strandline' AS matviewowner, NULL::TEXT AS tablespace,
        relhasindex AS hasindexes, true AS ispopulated, sql AS definition
    FROM pgc.pg_class JOIN pgc.definitions ON relation = oid WHERE relkind = 'm';
CREATE VIEW pgc.pg_views AS
    SELECT 'public' AS schemaname, relname AS viewname, 'strandline' AS viewowner, sql AS definition
    FROM pgc.pg_class JOIN pgc.definitions ON relation = oid WHERE relkind = 'v';
CREATE VIEW pgc.pg_indexes AS
    SELECT 'public' AS schemaname, t.relname AS tablename, i.relname AS indexname, NULL::TEXT AS tablespace,
        NULL::TEXT AS indexdef
    FROM pgc.pg_index x JOIN pgc.pg_class t ON t.oid = x.indrelid JOIN pgc.pg_class i ON i.oid = x.indexrelid;
CREATE TABLE pgc.pg_proc (
    oid BIGINT, proname TEXT, pronamespace BIGINT DEFAULT 11, proowner BIGINT DEFAULT 10, prolang BIGINT DEFAULT 12,
    procost DOUBLE DEFAULT 1, prorows DOUBLE DEFAULT 0, provariadic BIGINT DEFAULT 0, prokind TEXT DEFAULT 'f',
    prosecdef BOOLEAN DEFAULT false, proleakproof BOOLEAN DEFAULT false, proisstrict BOOLEAN DEFAULT true,
    proretset BOOLEAN DEFAULT false, provolatile TEXT DEFAULT 'i', proparallel TEXT DEFAULT 's',
    pronargs SMALLINT DEFAULT 1, pronargdefaults SMALLINT DEFAULT 0, prorettype BIGINT DEFAULT 0,
    proargtypes BIGINT[] DEFAULT [0], proallargtypes BIGINT[], proargmodes TEXT[], proargnames TEXT[],
    proargdefaults TEXT, prosrc TEXT, probin TEXT, proconfig TEXT[], proacl TEXT[]);
CREATE TABLE pgc.pg_language (
    oid BIGINT, lanname TEXT, lanowner BIGINT, lanispl BOOLEAN, lanpltrusted BOOLEAN, lanplcallfoid BIGINT,
    laninline BIGINT, lanvalidator BIGINT, lanacl TEXT[]);
INSERT INTO pgc.pg_language VALUES (12, 'internal', 10, false, false, 0, 0, 0, NULL);
