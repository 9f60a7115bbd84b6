"""The Data Docs of a view: what its expectations came to at one version, as one page beside the lake.

    <lake>/data_docs/<view>.html

Great Expectations writes such pages too, but theirs ask other hosts for style and scripts, and put values of rows
into the page as they are. This one is made of the same rendered content, needs no network and runs no script.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

from strandline.state_store.files import make_folder, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.expect.verdict import Verdict
    from strandline.jobs.model.options import Expectation
    from strandline.state_store.layout import LakeLayout

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content Security Policy: the page shows values of rows, and nothing in it may run or load anything."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2733 }
table { border-collapse: collapse; margin: .5rem 0 } th, td { border: 1px solid #cfd8e0; padding: .25rem .6rem }
th { background: #f1f5f8; text-align: left } section { border-left: .3rem solid; padding-left: 1rem; margin: 2rem 0 }
.passed { border-color: #2a9d5c } .warning { border-color: #d9a400 } .failed { border-color: #c8402f }
h2 { font-size: 1.1rem; margin: 0 } h2 small { font-weight: normal; color: #5b6b7a } p { margin: .3rem 0 }
"""


def write_docs(lake: LakeLayout, view: str, version: int, made: Sequence[tuple[Expectation, Verdict]]) -> None:
    """Write the page of a view, in the place of the one before.

    Raises:
        DiskFailed, StorageDenied: it could not be written.
    """
    file = lake.data_docs(view)
    make_folder(file.parent)
    replace(file, page(view, version, made).encode())


def read_docs(lake: LakeLayout, view: str) -> bytes | None:
    """The page of a view; None when its expectations were not validated yet."""
    try:
        return lake.data_docs(view).read_bytes()
    except FileNotFoundError:
        return None


def page(view: str, version: int, made: Sequence[tuple[Expectation, Verdict]]) -> str:
    """The page as HTML."""
    states = [_state(verdict) for _, verdict in made]
    counts = ", ".join(f"{states.count(name)} {name}" for name in ("passed", "warning", "failed"))
    name = html.escape(view)
    sections = "\n".join(_section(*each) for each in made)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Expectations of {name}</title>
<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}"><style>{_STYLE}</style></head>
<body><h1>Expectations of {name}</h1>
<p>Version {version}: {counts}.</p>
{sections}
</body></html>
"""


def _section(expectation: Expectation, verdict: Verdict) -> str:
    state = _state(verdict)
    follows = [name for name in ("blocking", "quarantine") if getattr(expectation, name)]
    said = ", ".join([state, *follows])
    numbers = _numbers(verdict.numbers)
    return f"""<section class="{state}"><h2>{html.escape(expectation.name)} <small>{said}</small></h2>
<p>{html.escape(verdict.what)}</p>{numbers}
{_rendered(verdict.markdown)}</section>"""


def _state(verdict: Verdict) -> str:
    if verdict.ok:
        return "passed"
    return "warning" if verdict.severity == "warn" else "failed"


def _numbers(numbers: Mapping[str, int | float]) -> str:
    rows = "".join(f"<tr><th>{html.escape(label)}</th><td>{value:g}</td></tr>" for label, value in numbers.items())
    return f"<table>{rows}</table>" if rows else ""


def _rendered(markdown: str) -> str:
    """Great Expectations' own rendering. HTML in it is text: it may be a value of a row."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
