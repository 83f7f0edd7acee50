"""A study as one self-contained HTML file: sentences, plots, tables; no scripts, no external resources."""

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from analytics import summary
from analytics.errors import CannotWrite
from analytics.legend import MEANINGS, heading
from analytics.plots import PLOTS, png
from analytics.results import Results, Row, short_id
from analytics.tables import Table, tables
from zerochat.terminal_text import printable_line

ROWS_MAX = 200
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #102a43; }
h1, h2 { line-height: 1.2; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 14px; } td, th { padding: .2rem .6rem; text-align: right; }
tr:nth-child(even) { background: #f0f4f8; } .doubt { color: #7b341e; } .wide { overflow-x: auto; }
summary { cursor: pointer; } dl { font-size: 14px; display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dt { font-weight: bold; } dd { margin: 0; }
"""
MEMBER = (
    *("member", "exported", "expected", "delivered", "ratio", "late", "dups", "p50_us", "p99_us", "said", "complete"),
    *("slow_in", "explains", "clock_us", "drift_ppm", "outages"),
)
SIZES = (
    *("grain", "keys", "path", "n", "batch", "messages", "expected", "delivered", "ratio", "complete"),
    *("whole_p50_us", "whole_p99_us", "p50_us", "p90_us", "p99_us"),
)
JOIN = (
    *("observer", "members", "connected", "outcome", "request_us", "view_us", "exchanges_us", "subscriptions_us"),
    *("announce_us", "whole_us", "whole_rtts"),
)


def write(results: Results, file: Path) -> None:
    """Write the report. Raises CannotWrite, and NoResults if a table is missing."""
    text = page(results)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        raise CannotWrite(place=str(file), why=error.strerror or type(error).__name__) from error


def page(results: Results) -> str:
    parts = [f"<h1>Message delivery</h1><ul>{''.join(_items(summary.sentences(results)))}</ul>"]
    doubts = summary.caveats(results)
    if doubts:
        parts.append(f'<h2>Caveats</h2><ul class="doubt">{"".join(_items(doubts))}</ul>')
    for title, draw in PLOTS.items():
        figure = draw(results)
        if figure is not None:
            picture = base64.b64encode(png(figure)).decode("ascii")
            about = _text(" ".join((draw.__doc__ or title).split()))
            parts.append(
                f'<h2>{_text(title)}</h2><p>{about}</p><img alt="{about}" src="data:image/png;base64,{picture}">'
            )
    for title, name, columns in (
        ("Members", "member", MEMBER),
        ("By key mode, path, size and batch", "keys_path_size", SIZES),
        ("Joins", "join", JOIN),
    ):
        parts.append(f"<h2>{_text(title)}</h2>{_table(results.rows(name), columns)}")
    parts += [f"<h2>{_text(table.title)}</h2>{_lines(table)}" for table in tables(results)]
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>Message delivery</title><style>{STYLE}</style>'
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _items(lines: Iterable[str]) -> Iterable[str]:
    return (f"<li>{_text(line)}</li>" for line in lines)


def _text(text: str) -> str:
    """Escaped text; content of others is sanitised as for a terminal."""
    return html.escape(str(printable_line(text)))


def _table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    if not rows:
        return "<p>None.</p>"
    names = [heading(name) for name in columns]
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    ordered = sorted(rows, key=lambda row: [(row[name] is None, str(row[name])) for name in columns[:5]])
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row[name], name)}</td>' for name in columns)}</tr>" for row in ordered[:ROWS_MAX]
    )
    more = f"<p>And {len(rows) - ROWS_MAX:,} more.</p>" if len(rows) > ROWS_MAX else ""
    return f'{_legend(names)}<div class="wide"><table><tr>{head}</tr>{body}</table></div>{more}'


def _legend(names: Iterable[str]) -> str:
    """A collapsible legend of the columns."""
    told = "".join(f"<dt>{_text(name)}</dt><dd>{_text(MEANINGS[name])}</dd>" for name in names)
    return f"<details><summary>Column descriptions</summary><dl>{told}</dl></details>"


def _lines(table: Table) -> str:
    """A table of the thesis, with its figures in the last column."""
    head = "".join(f"<th>{_text(name)}</th>" for name in (*table.columns, "times", table.unit, "thesis"))
    body = ""
    for line in table.rows[:ROWS_MAX]:
        cells = (*line.of, line.count, line.figure or "incomplete", line.published())
        body += f"<tr>{''.join(f'<td>{_text(str(cell))}</td>' for cell in cells)}</tr>"
    more = f"<p>And {len(table.rows) - ROWS_MAX:,} more.</p>" if len(table.rows) > ROWS_MAX else ""
    legend = _legend(["times", "thesis"])
    return f'{legend}<div class="wide"><table><tr>{head}</tr>{body}</table></div>{more}'


def _cell(value: object, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name in ("member", "observer"):
        return short_id(value)
    if isinstance(value, int | float) and name.endswith("_us"):
        return _text(("-" if value < 0 else "") + summary.duration(abs(value)))
    if isinstance(value, float):
        return _text(f"{value:.4g}" if name != "ratio" else f"{value:.4%}")
    return _text(f"{value:,}" if isinstance(value, int) else str(value))
