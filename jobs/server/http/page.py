"""`/`: the page for people. Its files are as they lie in `jobs/server/page`: no build, and nothing from other hosts.

They are open to all, since a browser needs them to ask for the token; what they show comes by `/v1`, with the token.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from strandline.jobs.server.http.requests import parameters

router = APIRouter(include_in_schema=False)

INDEX: Final = "index.html"
FILES: Final = {
    INDEX: "text/html",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
    "page.js": "text/javascript",
    "server.js": "text/javascript",
    "elements.js": "text/javascript",
    "views.js": "text/javascript",
    "view.js": "text/javascript",
    "query.js": "text/javascript",
    "lineage.js": "text/javascript",
}
"""{name: media type}. What is not named here is not served, whatever lies in the folder."""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # The browser itself refuses what would parse a value as markup.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content Security Policy, level 3: only this server's files run, and they talk to this server alone."""

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # A newer server has a newer page, and its parts fit each other only.
    "Cache-Control": "no-cache",
}


@router.get("/", openapi_extra=parameters("view"))
async def index() -> Response:
    """The page."""
    return _file(INDEX)


@router.get("/page/{name}")
async def file(name: str) -> Response:
    """Its style, its script and its icon; 404 for any other name."""
    return _file(name) if name in FILES else Response(status_code=404, headers=_HEADERS)


def _file(name: str) -> Response:
    content = resources.files("strandline.jobs.server").joinpath("page", name).read_bytes()
    return Response(content, headers=_HEADERS, media_type=FILES[name])
