-- Tables of pg_catalog that have no rows: of what a lake does not have, as psql, pgJDBC, DBeaver and pgAdmin ask for it.
CREATE TABLE pgc.pg_attrdef (oid BIGINT, adrelid BIGINT, adnum SMALLINT, adbin TEXT);
CREATE TABLE pgc.pg_description (objoid BIGINT, classoid BIGINT, objsubid INT, description TEXT);
CREATE TABLE pgc.pg_shdescription (objoid BIGINT, classoid BIGINT, description TEXT);
CREATE TABLE pgc.pg_seclabel (objoid BIGINT, classoid BIGINT, objsubid INT, provider TEXT, label TEXT);
CREATE TABLE pgc.pg_shseclabel (objoid BIGINT, classoid BIGINT, provider TEXT, label TEXT);
CREATE TABLE pgc.pg_seclabels (
    objoid BIGINT, classoid BIGINT, objsubid INT, objtype TEXT, objnamespace BIGINT, objname TEXT, provider TEXT,
    label TEXT);
CREATE TABLE pgc.pg_depend (
    classid BIGINT, objid BIGINT, objsubid INT, refclassid BIGINT, refobjid BIGINT, refobjsubid INT, deptype TEXT);
CREATE TABLE pgc.pg_shdepend (
    dbid BIGINT, classid BIGINT, objid BIGINT, objsubid INT, refclassid BIGINT, refobjid BIGINT, deptype TEXT);
CREATE TABLE pgc.pg_inherits (inhrelid BIGINT, inhparent BIGINT, inhseqno INT, inhdetachpending BOOLEAN);
CREATE TABLE pgc.pg_partitioned_table (
    partrelid BIGINT, partstrat TEXT, partnatts SMALLINT, partattrs SMALLINT[], partexprs TEXT);
CREATE TABLE pgc.pg_aggregate (
    aggfnoid BIGINT, aggkind TEXT, aggnumdirectargs SMALLINT, aggtransfn BIGINT, aggfinalfn BIGINT, aggsortop BIGINT,
    aggtranstype BIGINT, agginitval TEXT);
CREATE TABLE pgc.pg_cast (
    oid BIGINT, castsource BIGINT, casttarget BIGINT, castfunc BIGINT, castcontext TEXT, castmethod TEXT);
CREATE TABLE pgc.pg_conversion (
    oid BIGINT, conname TEXT, connamespace BIGINT, conowner BIGINT, conforencoding INT, contoencoding INT,
    conproc BIGINT, condefault BOOLEAN);
CREATE TABLE pgc.pg_operator (
    oid BIGINT, oprname TEXT, oprnamespace BIGINT, oprowner BIGINT, oprkind TEXT, oprcanmerge BOOLEAN,
    oprcanhash BOOLEAN, oprleft BIGINT, oprright BIGINT, oprresult BIGINT, oprcom BIGINT, oprnegate BIGINT,
    oprcode BIGINT, oprrest BIGINT, oprjoin BIGINT);
CREATE TABLE pgc.pg_opclass (
    oid BIGINT, opcmethod BIGINT, opcname TEXT, opcnamespace BIGINT, opcowner BIGINT, opcfamily BIGINT,
    opcintype BIGINT, opcdefault BOOLEAN, opckeytype BIGINT);
CREATE TABLE pgc.pg_opfamily (oid BIGINT, opfmethod BIGINT, opfname TEXT, opfnamespace BIGINT, opfowner BIGINT);
CREATE TABLE pgc.pg_amop (
    oid BIGINT, amopfamily BIGINT, amoplefttype BIGINT, amoprighttype BIGINT, amopstrategy SMALLINT, amoppurpose TEXT,
    amopopr BIGINT, amopmethod BIGINT, amopsortfamily BIGINT);
CREATE TABLE pgc.pg_amproc (
    oid BIGINT, amprocfamily BIGINT, amproclefttype BIGINT, amprocrighttype BIGINT, amprocnum SMALLINT, amproc BIGINT);
CREATE TABLE pgc.pg_trigger (
    oid BIGINT, tgrelid BIGINT, tgname TEXT, tgenabled TEXT, tgisinternal BOOLEAN, tgconstraint BIGINT, tgfoid BIGINT,
    tgparentid BIGINT, tgdeferrable BOOLEAN, tginitdeferred BOOLEAN, tgtype SMALLINT);
CREATE TABLE pgc.pg_event_trigger (
    oid BIGINT, evtname TEXT, evtevent TEXT, evtowner BIGINT, evtfoid BIGINT, evtenabled TEXT, evttags TEXT[]);
CREATE TABLE pgc.pg_rewrite (oid BIGINT, rulename TEXT, ev_class BIGINT, ev_type TEXT, ev_enabled TEXT);
CREATE TABLE pgc.pg_rules (schemaname TEXT, tablename TEXT, rulename TEXT, definition TEXT);
CREATE TABLE pgc.pg_policy (
    oid BIGINT, polname TEXT, polrelid BIGINT, polcmd TEXT, polpermissive BOOLEAN, polroles BIGINT[], polqual TEXT,
    polwithcheck TEXT);
CREATE TABLE pgc.pg_policies (
    schemaname TEXT, tablename TEXT, policyname TEXT, permissive TEXT, roles TEXT[], cmd TEXT, qual TEXT,
    with_check TEXT);
CREATE TABLE pgc.pg_statistic_ext (
    oid BIGINT, stxrelid BIGINT, stxname TEXT, stxnamespace BIGINT, stxowner BIGINT, stxkeys SMALLINT[],
    stxkind TEXT[], stxstattarget INT);
CREATE TABLE pgc.pg_stats (
    schemaname TEXT, tablename TEXT, attname TEXT, inherited BOOLEAN, null_frac DOUBLE, avg_width INT,
    n_distinct DOUBLE, correlation DOUBLE);
CREATE TABLE pgc.pg_publication (
    oid BIGINT, pubname TEXT, pubowner BIGINT, puballtables BOOLEAN, pubinsert BOOLEAN, pubupdate BOOLEAN,
    pubdelete BOOLEAN, pubtruncate BOOLEAN, pubviaroot BOOLEAN);
CREATE TABLE pgc.pg_publication_rel (oid BIGINT, prpubid BIGINT, prrelid BIGINT, prqual TEXT, prattrs SMALLINT[]);
CREATE TABLE pgc.pg_publication_tables (pubname TEXT, schemaname TEXT, tablename TEXT);
CREATE TABLE pgc.pg_subscription (
    oid BIGINT, subdbid BIGINT, subname TEXT, subowner BIGINT, subenabled BOOLEAN, subconninfo TEXT, subslotname TEXT,
    subsynccommit TEXT, subpublications TEXT[]);
CREATE TABLE pgc.pg_foreign_data_wrapper (
    oid BIGINT, fdwname TEXT, fdwowner BIGINT, fdwhandler BIGINT, fdwvalidator BIGINT, fdwacl TEXT[],
    fdwoptions TEXT[]);
CREATE TABLE pgc.pg_foreign_server (
    oid BIGINT, srvname TEXT, srvowner BIGINT, srvfdw BIGINT, srvtype TEXT, srvversion TEXT, srvacl TEXT[],
    srvoptions TEXT[]);
CREATE TABLE pgc.pg_foreign_table (ftrelid BIGINT, ftserver BIGINT, ftoptions TEXT[]);
CREATE TABLE pgc.pg_user_mapping (oid BIGINT, umuser BIGINT, umserver BIGINT, umoptions TEXT[]);
CREATE TABLE pgc.pg_user_mappings (
    umid BIGINT, srvid BIGINT, srvname TEXT, umuser BIGINT, usename TEXT, umoptions TEXT[]);
CREATE TABLE pgc.pg_collation (
    oid BIGINT, collname TEXT, collnamespace BIGINT, collowner BIGINT, collprovider TEXT,
    collisdeterministic BOOLEAN, collencoding INT, collcollate TEXT, collctype TEXT);
CREATE TABLE pgc.pg_enum (oid BIGINT, enumtypid BIGINT, enumsortorder DOUBLE, enumlabel TEXT);
CREATE TABLE pgc.pg_range (rngtypid BIGINT, rngsubtype BIGINT, rngmultitypid BIGINT, rngcollation BIGINT);
CREATE TABLE pgc.pg_transform (
    oid BIGINT, trftype BIGINT, trflang BIGINT, trffromsql BIGINT, trftosql BIGINT);
CREATE TABLE pgc.pg_extension (
    oid BIGINT, extname TEXT, extowner BIGINT, extnamespace BIGINT, extrelocatable BOOLEAN, extversion TEXT,
    extconfig BIGINT[], extcondition TEXT[]);
CREATE TABLE pgc.pg_available_extensions (
    name TEXT, default_version TEXT, installed_version TEXT, comment TEXT);
CREATE TABLE pgc.pg_sequence (
    seqrelid BIGINT, seqtypid BIGINT, seqstart BIGINT, seqincrement BIGINT, seqmax BIGINT, seqmin BIGINT,
    seqcache BIGINT, seqcycle BOOLEAN);
CREATE TABLE pgc.pg_sequences (
    schemaname TEXT, sequencename TEXT, sequenceowner TEXT, data_type BIGINT, start_value BIGINT, min_value BIGINT,
    max_value BIGINT, increment_by BIGINT, cycle BOOLEAN, cache_size BIGINT, last_value BIGINT);
CREATE TABLE pgc.pg_default_acl (
    oid BIGINT, defaclrole BIGINT, defaclnamespace BIGINT, defaclobjtype TEXT, defaclacl TEXT[]);
CREATE TABLE pgc.pg_auth_members (roleid BIGINT, member BIGINT, grantor BIGINT, admin_option BOOLEAN);
CREATE TABLE pgc.pg_db_role_setting (setdatabase BIGINT, setrole BIGINT, setconfig TEXT[]);
CREATE TABLE pgc.pg_largeobject_metadata (oid BIGINT, lomowner BIGINT, lomacl TEXT[]);
CREATE TABLE pgc.pg_ts_config (oid BIGINT, cfgname TEXT, cfgnamespace BIGINT, cfgowner BIGINT, cfgparser BIGINT);
CREATE TABLE pgc.pg_ts_dict (
    oid BIGINT, dictname TEXT, dictnamespace BIGINT, dictowner BIGINT, dicttemplate BIGINT, dictinitoption TEXT);
CREATE TABLE pgc.pg_ts_parser (
    oid BIGINT, prsname TEXT, prsnamespace BIGINT, prsstart BIGINT, prstoken BIGINT, prsend BIGINT,
    prsheadline BIGINT, prslextype BIGINT);
CREATE TABLE pgc.pg_ts_template (
    oid BIGINT, tmplname TEXT, tmplnamespace BIGINT, tmplinit BIGINT, tmpllexize BIGINT);
CREATE TABLE pgc.pg_stat_activity (
    datid BIGINT, datname TEXT, pid INT, usesysid BIGINT, usename TEXT, application_name TEXT, client_addr TEXT,
    client_hostname TEXT, client_port INT, backend_start TIMESTAMPTZ, xact_start TIMESTAMPTZ, query_start TIMESTAMPTZ,
    state_change TIMESTAMPTZ, wait_event_type TEXT, wait_event TEXT, state TEXT, query TEXT, backend_type TEXT);
CREATE TABLE pgc.pg_stat_user_tables (
    relid BIGINT, schemaname TEXT, relname TEXT, seq_scan BIGINT, idx_scan BIGINT, n_live_tup BIGINT,
    n_dead_tup BIGINT, last_vacuum TIMESTAMPTZ, last_analyze TIMESTAMPTZ);
CREATE TABLE pgc.pg_statio_user_tables (relid BIGINT, schemaname TEXT, relname TEXT);
CREATE TABLE pgc.pg_stat_ssl (pid INT, ssl BOOLEAN, version TEXT, cipher TEXT, bits INT);
CREATE TABLE pgc.pg_stat_gssapi (pid INT, gss_authenticated BOOLEAN, principal TEXT, encrypted BOOLEAN);
CREATE TABLE pgc.pg_locks (locktype TEXT, database BIGINT, relation BIGINT, pid INT, mode TEXT, granted BOOLEAN);
CREATE TABLE pgc.pg_cursors (name TEXT, statement TEXT, is_holdable BOOLEAN, is_binary BOOLEAN);
CREATE TABLE pgc.pg_prepared_statements (name TEXT, statement TEXT, from_sql BOOLEAN);
CREATE TABLE pgc.pg_prepared_xacts (transaction BIGINT, gid TEXT, owner TEXT, database TEXT);
CREATE TABLE pgc.pg_replication_slots (slot_name TEXT, plugin TEXT, slot_type TEXT, database TEXT, active BOOLEAN);
CREATE TABLE pgc.pg_stat_replication (pid INT, usename TEXT, application_name TEXT, client_addr TEXT, state TEXT);
CREATE TABLE pgc.pg_stat_database (
    datid BIGINT, datname TEXT, numbackends INT, xact_commit BIGINT, xact_rollback BIGINT, blks_read BIGINT,
    blks_hit BIGINT, tup_returned BIGINT, tup_fetched BIGINT, deadlocks BIGINT, stats_reset TIMESTAMPTZ);
