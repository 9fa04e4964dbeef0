"""What a cell shows beside its output: `display`, the representations of its value, and figures of matplotlib.

A representation that fails is left out and noted on standard error: it never fails the cell. Nothing is imported for
it: matplotlib is spoken to only where the cell's own code has loaded it.
"""

import base64
import builtins
import io
import json
import os
import re
import sys

from python_table import MEDIA_TYPE as TABLE, table_data

MAX_PARTS = 64
MAX_BYTES = 6 * 1024 * 1024
MAX_NOTE_CHARS = 300
PYPLOT = "matplotlib.pyplot"
PLAIN = "text/plain"
MIME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}", re.IGNORECASE)
REPRESENTATIONS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_json_": "application/json",
}


class Displays:
    """The rich results of the running cell, in the order in which they were shown."""

    def __init__(self):
        self.pid = os.getpid()
        self.begin()
        builtins.display = self.display
        sys.meta_path.insert(0, PyplotFinder(self))
        os.environ.setdefault("MPLBACKEND", "agg")

    def begin(self):
        self.results = []
        self.room = MAX_BYTES
        self.full = False
        self.shown_figures = {}

    def end(self):
        """The results, let go here, as are the figures."""
        results = self.results
        self.begin()
        return results

    def display(self, *objects):
        """Shows each object in its richest representations, as a notebook does; as text where it has none."""
        for shown in objects:
            self.show_object(shown, with_text=True)

    def show_object(self, shown, with_text):
        bundle = figure_bundle(shown) if is_figure(shown) else representations(shown)
        if is_figure(shown) and bundle:
            self.shown_figures[id(shown)] = shown
        text = bundle.pop(PLAIN, None)
        if with_text and not bundle:
            bundle[PLAIN] = text if isinstance(text, str) else plain_text(shown)
        table = table_data(shown)
        if table is not None:
            bundle.setdefault(TABLE, table)
        for mime, data in bundle.items():
            self.add(mime, data)

    def add(self, mime, data):
        if self.full:
            return
        size = len(data) if data.isascii() else len(data.encode("utf-8", "surrogatepass"))
        if size > self.room:
            data, mime = f"[{mime} of {size} bytes left out: a cell shows at most {MAX_BYTES} bytes]", PLAIN
            size = 0
        elif len(self.results) == MAX_PARTS - 1:
            data, mime, size = f"[the rest is left out: a cell shows at most {MAX_PARTS} results]", PLAIN, 0
            self.full = True
        self.room -= size
        self.results.append({"mime": mime, "data": data})

    def show_figures(self):
        """Every open figure that the cell has not shown yet, then closes it: what `pyplot.show` does here."""
        pyplot = sys.modules.get(PYPLOT)
        if pyplot is None or os.getpid() != self.pid:
            return
        try:
            for number in list(pyplot.get_fignums()):
                figure = pyplot.figure(number)
                try:
                    if id(figure) not in self.shown_figures:
                        self.show_object(figure, with_text=False)
                finally:
                    pyplot.close(figure)
        except Exception as error:
            note("the figures", error)

    def close_figures(self):
        pyplot = sys.modules.get(PYPLOT)
        if pyplot is not None and os.getpid() == self.pid:
            pyplot.close("all")


class PyplotFinder:
    """Lets pyplot be found as ever, and has its `show` show here: the backend without windows shows nothing."""

    def __init__(self, displays):
        self.displays = displays

    def find_spec(self, fullname, path=None, target=None):
        if fullname != PYPLOT:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(fullname, path, target)
            if spec is not None:
                self.extend(spec.loader)
                return spec
        return None

    def extend(self, loader):
        execute = loader.exec_module
        displays = self.displays

        def show(*_args, **_options):
            """Shows every open figure as a result of the cell, and closes it."""
            displays.show_figures()

        def exec_module(module):
            execute(module)
            module.show = show

        loader.exec_module = exec_module


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    figure = getattr(module, "Figure", None)
    return isinstance(figure, type) and isinstance(value, figure)


def figure_bundle(figure):
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, format="png", bbox_inches="tight")
    except Exception as error:
        note("the figure", error)
        return {}
    return {"image/png": base64.b64encode(buffer.getvalue()).decode("ascii")}


def representations(value):
    """What the value offers of the protocol of notebooks, by media type."""
    found = {}
    if isinstance(value, type):
        return found
    for method in ("_repr_mimebundle_", *REPRESENTATIONS):
        if not callable(getattr(type(value), method, None)):
            continue
        try:
            data = getattr(value, method)()
            if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], dict):
                data = data[0]  # the second is metadata
            bundle = data if method == "_repr_mimebundle_" else {REPRESENTATIONS[method]: data}
            for mime, content in (bundle or {}).items():
                if content is not None and isinstance(mime, str) and MIME.fullmatch(mime):
                    found.setdefault(mime, encoded(mime, content))
        except Exception as error:
            note(f"{method} of {type(value).__name__}", error)
    return found


def encoded(mime, content):
    """Text as it is, bytes in base64, and data as JSON."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        content = bytes(content)
        if mime.startswith("text/") or mime == "image/svg+xml":
            return content.decode("utf-8")
        return base64.b64encode(content).decode("ascii")
    if isinstance(content, str) and not is_json(mime):
        return str(content)
    return json.dumps(content, allow_nan=False, default=str)


def is_json(mime):
    return mime == "application/json" or mime.endswith("+json")


def plain_text(value):
    try:
        return repr(value)
    except Exception as error:
        note(f"__repr__ of {type(value).__name__}", error)
        return f"<unprintable {type(value).__name__} object>"


def note(what, error):
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    try:
        print(f"{what} cannot be shown: {text[:MAX_NOTE_CHARS]}", file=sys.stderr)
    except Exception:
        pass
