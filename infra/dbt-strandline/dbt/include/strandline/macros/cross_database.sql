{#- What dbt's own texts of its cross-database macros do not say in the language of views. -#}

{% macro strandline__current_timestamp() -%}
  now()
{%- endmacro %}

{% macro strandline__dateadd(datepart, interval, from_date_or_timestamp) -%}
  {#- A DATE and hours is a moment, not a day. -#}
  {%- if datepart | lower in ('hour', 'minute', 'second', 'millisecond') -%}
    dateadd({{ datepart }}, {{ interval }}, CAST({{ from_date_or_timestamp }} AS TIMESTAMP))
  {%- else -%}
    dateadd({{ datepart }}, {{ interval }}, {{ from_date_or_timestamp }})
  {%- endif -%}
{%- endmacro %}

{% macro strandline__date(year, month, day) -%}
  make_date({{ year }}, {{ month }}, {{ day }})
{%- endmacro %}

{% macro strandline__safe_cast(field, type) -%}
  try_cast({{ field }} AS {{ type }})
{%- endmacro %}

{% macro strandline__snapshot_string_as_time(timestamp) -%}
  {{ return("CAST('" ~ timestamp ~ "' AS TIMESTAMP)") }}
{%- endmacro %}

{% macro strandline__get_columns_in_relation(relation) -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{%- endmacro %}

{#- rowtime is the time of the event in milliseconds; dbt compares moments. -#}
{% macro strandline__collect_freshness(source, loaded_at_field, filter) %}
  {%- set at = 'from_unixtime(max(rowtime))' if loaded_at_field | trim | lower == 'rowtime' else 'max(' ~ loaded_at_field ~ ')' -%}
  {% call statement('collect_freshness', fetch_result=True, auto_begin=False) -%}
    select {{ at }} as max_loaded_at, {{ current_timestamp() }} as snapshotted_at
    from {{ source }}
    {% if filter %}where {{ filter }}{% endif %}
  {%- endcall %}
  {{ return(load_result('collect_freshness')) }}
{% endmacro %}
