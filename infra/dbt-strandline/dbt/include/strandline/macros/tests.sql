{#- Failures that are stored are a view, which goes on saying what fails; a unit test is a pull query over its rows. -#}

{% materialization test, adapter='strandline' %}
  {%- set limited = get_limit_subquery_sql(sql, config.get('limit')) -%}
  {%- set asked, relations = limited, [] -%}
  {%- if should_store_failures() -%}
    {%- set kind = config.get('store_failures_as') or 'table' -%}
    {%- if kind not in ('table', 'view') -%}
      {{ exceptions.raise_compiler_error("store_failures_as is 'table', 'view' or 'ephemeral', not '" ~ kind ~ "'") }}
    {%- endif -%}
    {%- set target = this.incorporate(type='view' if kind == 'view' else 'materialized_view') -%}
    {%- set present = load_cached_relation(this) -%}
    {%- if present is not none and present.type != target.type -%}
      {%- do adapter.drop_relation(present) -%}
    {%- endif -%}
    {%- set created = 'VIEW' if kind == 'view' else 'MATERIALIZED VIEW' -%}
    {%- do adapter.define(target, 'CREATE OR REPLACE ' ~ created ~ ' ' ~ target ~ ' AS ' ~ sql) -%}
    {%- if kind == 'table' -%}
      {%- do adapter.drain(target) -%}
      {%- do adapter.drain_own(target) -%}
    {%- endif -%}
    {%- do relations.append(target) -%}
    {%- set asked = get_limit_subquery_sql('select * from ' ~ target, config.get('limit')) -%}
  {%- endif -%}
  {% call statement('main', fetch_result=True) -%}
    {{ get_test_sql(asked, config.get('fail_calc'), config.get('warn_if'), config.get('error_if'), limit=none) }}
  {%- endcall %}
  {{ return({'relations': relations}) }}
{% endmaterialization %}

{% materialization unit, adapter='strandline' %}
  {%- set types, quoted = {}, {} -%}
  {%- for column in adapter.get_column_schema_from_query(sql) -%}
    {%- do types.update({column.name | lower: column.data_type}) -%}
    {%- do quoted.update({column.name | lower: column.quoted}) -%}
  {%- endfor -%}
  {%- set rows = config.get('expected_rows') -%}
  {%- set named = rows[0].keys() if rows else types.keys() -%}
  {%- set compared = [] -%}
  {%- for name in named -%}
    {%- do compared.append(quoted[name | lower]) -%}
  {%- endfor -%}
  {%- set expected = config.get('expected_sql') or get_expected_sql(rows, types, quoted) -%}
  {% call statement('main', fetch_result=True) -%}
    {{ get_unit_test_sql(sql, expected, compared) }}
  {%- endcall %}
  {{ return({'relations': []}) }}
{% endmaterialization %}
