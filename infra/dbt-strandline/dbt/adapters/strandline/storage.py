"""What is said to DuckDB and deltalake of what they write beside the lake's own tables: keys of storage, and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings


def storage_options(settings: Settings) -> dict[str, str]:
    """The lake's own keys in the words of deltalake."""
    said = settings.storage.options().with_environment()
    named = {
        "AWS_ENDPOINT_URL": said.endpoint,
        "AWS_REGION": said.region,
        "AWS_ACCESS_KEY_ID": said.access_key_id,
        "AWS_SECRET_ACCESS_KEY": said.secret_access_key,
        "AWS_SESSION_TOKEN": said.session_token,
        "AWS_ALLOW_HTTP": "true" if said.allow_http else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true" if said.virtual_hosted_style else None,
    }
    return {name: value for name, value in named.items() if value}


def quoted(name: str) -> str:
    """A name, as SQL has it when it is none of its words."""
    return '"' + name.replace('"', '""') + '"'
