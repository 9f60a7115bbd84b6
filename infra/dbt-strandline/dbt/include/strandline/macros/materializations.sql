{#- A model is one statement, and CREATE OR REPLACE is the whole of its life: what is there as it is stays, what is
    there differently is replaced from history. `is_incremental()` is false: it asks for a relation of type table. -#}

{% macro strandline__with_options() -%}
  {%- set said = dict(config.get('options') or {}) -%}
  {%- if model.description and 'description' not in said -%}
    {%- do said.update({'description': model.description}) -%}
  {%- endif -%}
  {%- if said %} WITH ({% for name, value in said.items() -%}
    {{ name | upper }} = '{{ (value | string).replace("'", "''") }}'{{ ", " if not loop.last }}
  {%- endfor %}){% endif -%}
{%- endmacro %}

{% macro strandline__as_agreed(sql) -%}
  {#- The SELECT of a model, with the columns of its contract in their order, where it has one. -#}
  {%- if config.get('sql_header') -%}
    {{ exceptions.raise_compiler_error("sql_header has no meaning here: a model is one statement") }}
  {%- endif -%}
  {%- if config.get('contract').enforced -%}
    {{ get_assert_columns_equivalent(sql) }}
    {%- do adapter.render_raw_columns_constraints(raw_columns=model['columns']) -%}
    {%- do adapter.render_raw_model_constraints(raw_constraints=model['constraints']) -%}
    {{ return(get_select_subquery(sql)) }}
  {%- endif -%}
  {{ return(sql) }}
{%- endmacro %}

{% macro strandline__maintained(sql) %}
  {%- set target = this.incorporate(type='materialized_view') -%}
  {%- set present = load_cached_relation(this) -%}
  {{ run_hooks(pre_hooks) }}
  {%- set sql = strandline__as_agreed(sql) -%}
  {%- if config.get('grants') -%}
    {{ exceptions.raise_compiler_error("grants are the storage's: a lake has none") }}
  {%- endif -%}
  {%- set definition -%}
    CREATE OR REPLACE MATERIALIZED VIEW {{ target }}{{ strandline__with_options() }} AS
    {{ sql }}
  {%- endset -%}
  {% call noop_statement('main', adapter.define_model(target, present, definition, should_full_refresh())) -%}{{ definition }}{%- endcall %}
  {%- set drained = adapter.drain(target) -%}
  {%- if drained and config.get('unique_key') -%}
    {%- do adapter.check_unique(target, config.get('unique_key')) -%}
  {%- endif -%}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmacro %}

{% materialization materialized_view, adapter='strandline' %}
  {{ return(strandline__maintained(sql)) }}
{% endmaterialization %}

{% materialization incremental, adapter='strandline' %}
  {{ return(strandline__maintained(sql)) }}
{% endmaterialization %}

{% materialization table, adapter='strandline' %}
  {{ return(strandline__maintained(sql)) }}
{% endmaterialization %}

{% materialization view, adapter='strandline' %}
  {%- set target = this.incorporate(type='view') -%}
  {%- set present = load_cached_relation(this) -%}
  {{ run_hooks(pre_hooks) }}
  {%- set sql = strandline__as_agreed(sql) -%}
  {%- if config.get('options') -%}
    {{ exceptions.raise_compiler_error("options are for views whose rows are kept: materialized='materialized_view'") }}
  {%- endif -%}
  {%- set definition -%}
    CREATE OR REPLACE VIEW {{ target }} AS
    {{ sql }}
  {%- endset -%}
  {% call noop_statement('main', adapter.define_model(target, present, definition, should_full_refresh())) -%}{{ definition }}{%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% materialization seed, adapter='strandline' %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set rows = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=rows) -%}
  {{ run_hooks(pre_hooks) }}
  {%- set place = adapter.write_seed(target, rows, config.get('column_types') or {}) -%}
  {%- do adapter.drop_if_other(target, place, should_full_refresh()) -%}
  {%- set definition -%}
    CREATE TABLE IF NOT EXISTS {{ target }} WITH (DELTA = '{{ place.replace("'", "''") }}')
  {%- endset -%}
  {% call noop_statement('main', adapter.define(target, definition)) -%}{{ definition }}{%- endcall %}
  {%- do adapter.drain(target) -%}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
