{#- A snapshot is a Delta table beside the lake's own, into which each `dbt snapshot` merges the rows that end and begin:
    those that dbt's own text for the strategy finds. A source over it brings them to the lake. -#}

{% macro strandline__read_by(node_ids, names) -%}
  {#- The names of what nodes read, also through ephemeral models and plain views. -#}
  {%- for id in node_ids -%}
    {%- set node = graph.sources.get(id) or graph.nodes.get(id) -%}
    {%- do names.append(node.identifier or node.alias) -%}
    {%- do strandline__read_by(node.get('depends_on', {}).get('nodes', []), names) -%}
  {%- endfor -%}
{%- endmacro %}

{% materialization snapshot, adapter='strandline' %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set present = load_cached_relation(this) -%}
  {%- if present is not none and present.type != 'table' -%}
    {%- do exceptions.relation_wrong_type(present, 'table') -%}
  {%- endif -%}
  {{ run_hooks(pre_hooks) }}
  {%- set names = [] -%}
  {%- do strandline__read_by(model.depends_on.nodes, names) -%}
  {%- do adapter.drain_below(names) -%}
  {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set strategy_of = strategy_dispatch(config.get('strategy')) -%}
  {%- if present is none -%}
    {%- set strategy = strategy_of(model, 'snapshotted_data', 'source_data', model['config'], false) -%}
    {%- do adapter.make_snapshot(target, build_snapshot_table(strategy, sql), columns.dbt_scd_id) -%}
  {%- endif -%}
  {%- set strategy = strategy_of(model, 'snapshotted_data', 'source_data', model['config'], true) -%}
  {{ adapter.assert_valid_snapshot_target_given_strategy(target, columns, strategy) }}
  {%- set staged = snapshot_staging_table(strategy, sql, target) -%}
  {%- set said = adapter.take_snapshot(target, staged, columns.dbt_scd_id, columns.dbt_valid_to) -%}
  {% call noop_statement('main', said) -%}{{ staged }}{%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
