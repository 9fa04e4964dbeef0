"""A table of pandas as data, beside the HTML that is for people: a tabular data resource, bounded.

Nothing is imported for it: pandas is spoken to only where the cell's own code has loaded it.
"""

import sys

MEDIA_TYPE = "application/vnd.dataresource+json"
MAX_ROWS = 1000
MAX_CELLS = 20_000
MAX_CHARS = 512 * 1024


def table_data(value):
    """The first rows as JSON text with how many there are in all; None for what is no table, or cannot be told so."""
    pandas = sys.modules.get("pandas")
    kinds = tuple(kind for kind in (getattr(pandas, name, None) for name in ("DataFrame", "Series")) if isinstance(kind, type))
    if not isinstance(value, kinds):
        return None
    try:
        total = len(value)
        columns = value.shape[1] if len(value.shape) > 1 else 1
        rows = min(total, MAX_ROWS, MAX_CELLS // (columns + 1))
        if rows == 0 and total > 0:
            return None
        text = as_json(value.head(rows))
        # Long texts in few cells: fewer rows are told, rather than none.
        while len(text) > MAX_CHARS and rows > 1:
            rows //= 2
            text = as_json(value.head(rows))
        if len(text) > MAX_CHARS or not text.startswith("{"):
            return None
        return '{"total_rows":%d,"truncated":%s,%s' % (total, "true" if rows < total else "false", text[1:])
    except Exception:
        # Columns of several levels, or twice the same name, have no such form; the HTML shows them.
        return None


def as_json(table):
    return table.to_json(orient="table", date_format="iso", force_ascii=False, default_handler=str)
