"""How a cell came out, as text within bounds: its value, its exit code, its error with the lines of cells and no others."""

import linecache
import os
import sys
import traceback

MAX_VALUE_BYTES = 1024 * 1024 - 64  # the host marks a value that was cut
MAX_NAME_BYTES = 256
MAX_MESSAGE_BYTES = 16 * 1024
MAX_TRACEBACK_BYTES = 64 * 1024
KEPT_CELL_SOURCES = 500
KERNEL_FOLDER = os.path.dirname(os.path.abspath(__file__))


def shorten(text, limit):
    """The text within `limit` bytes of UTF-8, and whether something was cut off."""
    if len(text) * 4 <= limit:
        return text, False
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text, False
    return data[:limit].decode("utf-8", "ignore"), True


def shown_value(value):
    """Its text, and how many characters it has where that is not all of it."""
    whole = repr(value)
    text, truncated = shorten(whole, MAX_VALUE_BYTES)
    return text, len(whole) if truncated else None


def remember_source(name, number, source):
    """Lets tracebacks show the lines of cells; no time of change, so that the cache never asks the disk."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    linecache.cache.pop(f"<cell {number - KEPT_CELL_SOURCES}>", None)


def exit_code_of(exit):
    if exit.code is None:
        return 0
    if isinstance(exit.code, int):
        return exit.code & 0xFF
    try:
        print(exit.code, file=sys.stderr)
    except Exception:
        pass
    return 1


def message_of(error):
    try:
        text = error.msg if isinstance(error, SyntaxError) and isinstance(error.msg, str) else str(error)
    except BaseException:
        text = f"<unprintable {type(error).__name__} object>"
    return shorten(text, MAX_MESSAGE_BYTES)[0]


def is_of_kernel(file_name):
    return os.path.dirname(file_name) == KERNEL_FOLDER


def below_kernel(trace):
    """The traceback from the cell's first frame on; without one, from behind the kernel's own frames."""
    start = trace
    while start is not None and not start.tb_frame.f_code.co_filename.startswith("<cell "):
        start = start.tb_next
    if start is not None:
        return start
    while trace is not None and is_of_kernel(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def leave_out_kernel(described, depth):
    """Frames of the kernel can also end a traceback, as that of an interrupt, or stand in a chained one."""
    if described is None or depth > 50:
        return
    described.stack[:] = [frame for frame in described.stack if not is_of_kernel(frame.filename)]
    leave_out_kernel(described.__cause__, depth + 1)
    leave_out_kernel(described.__context__, depth + 1)
    for inner in getattr(described, "exceptions", None) or ():
        leave_out_kernel(inner, depth + 1)


def describe(error):
    name = type(error).__name__
    message = message_of(error)
    try:
        trace = below_kernel(error.__traceback__)
        described = traceback.TracebackException(type(error), error, trace)
        leave_out_kernel(described, 0)
        if isinstance(error, SyntaxError) and trace is None:
            text = "".join(described.format_exception_only())
        else:
            text = "".join(described.format())
    except BaseException:
        text = f"{name}: {message}\n"
    if len(text) > MAX_TRACEBACK_BYTES // 4:
        data = text.encode("utf-8", "surrogatepass")
        half = MAX_TRACEBACK_BYTES // 2
        if len(data) > MAX_TRACEBACK_BYTES:
            cut = f"\n... {len(data) - 2 * half} bytes of the traceback left out ...\n"
            text = data[:half].decode("utf-8", "ignore") + cut + data[-half:].decode("utf-8", "ignore")
    return {"name": shorten(name, MAX_NAME_BYTES)[0], "message": message, "traceback": text}
