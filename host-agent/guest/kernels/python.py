"""The Python kernel of a sandbox: runs cells one after another in one namespace.

Speaks u32 big-endian length + JSON on the control pair, never on the standard streams: those belong to the cells.
Everything in this process can be reached by the cells, so nothing here is a boundary; it is only kept out of their way.
"""

import ast
import builtins
import fcntl
import importlib
import io
import json
import linecache
import os
import resource
import select
import signal
import sys
import traceback
import types

import python_display
import python_table

CONTROL_IN = 198
CONTROL_OUT = 199
KEPT_FD_FLOOR = 200
MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_VALUE_BYTES = 1024 * 1024 - 64  # the host marks a value that was cut
MAX_NAME_BYTES = 256
MAX_MESSAGE_BYTES = 16 * 1024
MAX_TRACEBACK_BYTES = 64 * 1024
KEPT_CELL_SOURCES = 500

CO_COROUTINE = 0x80
FUTURE_FLAGS = 0
for _name in __import__("__future__").all_feature_names:
    FUTURE_FLAGS |= getattr(__import__("__future__"), _name).compiler_flag
KERNEL_FOLDER = os.path.dirname(os.path.abspath(__file__))
KERNEL_FILES = (
    __file__,
    python_display.__file__,
    python_table.__file__,
    os.path.join(KERNEL_FOLDER, "python_tools.py"),
)
python_tools = None


def read_exactly(count):
    parts = []
    while count > 0:
        part = os.read(CONTROL_IN, min(count, 1024 * 1024))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive():
    length = int.from_bytes(read_exactly(4), "big")
    if length > MAX_REQUEST_BYTES:
        os._exit(1)
    return json.loads(read_exactly(length))


def send(head, texts=()):
    """u32 length, u32 length of the head, the head as JSON, and the texts whose lengths in bytes it names."""
    head = json.dumps(head).encode("ascii")
    body = b"".join((len(head).to_bytes(4, "big"), head, *texts))
    data = memoryview(len(body).to_bytes(4, "big") + body)
    while data:
        data = data[os.write(CONTROL_OUT, data) :]


def send_result(value, error, results, **head):
    texts = []

    def length_of(text):
        texts.append(encode(text))
        return len(texts[-1])

    head["value"] = None if value is None else length_of(value)
    if error is not None:
        error = {"name": error["name"], "message": length_of(error["message"]), "traceback": length_of(error["traceback"])}
    head["error"] = error
    head["results"] = [{"mime": result["mime"], "data": length_of(result["data"])} for result in results]
    send({"type": "result", **head}, texts)


def encode(text):
    """UTF-8 of any string: two halves of a character become one, a half on its own U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


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


class StandardStreams:
    """Keeps the file descriptors 0 to 2 and the objects on top of them usable, whatever a cell does to them."""

    def __init__(self):
        self.kept = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, KEPT_FD_FLOOR) for fd in (0, 1, 2)]
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.null = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, KEPT_FD_FLOOR)
        os.close(null)
        self.identities = [self.identity(fd) for fd in self.kept]
        self.input = self.own_input = None
        self.own_outputs = {}
        self.prepare(False)

    @staticmethod
    def identity(fd):
        try:
            status = os.fstat(fd)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def prepare(self, with_input):
        for fd in (1, 2):
            if self.identity(fd) != self.identities[fd]:
                os.dup2(self.kept[fd], fd)
        source = self.kept[0] if with_input else self.null
        if self.identity(0) != self.identity(source):
            os.dup2(source, 0)
        if with_input:
            self.drop_old_input()
        if with_input or self.input or sys.stdin is None or sys.stdin.closed:
            sys.stdin = io.TextIOWrapper(
                io.BufferedReader(io.FileIO(0, "rb", closefd=False)), "utf-8", "surrogateescape"
            )
        self.input = with_input
        for fd, name in ((1, "stdout"), (2, "stderr")):
            stream = getattr(sys, name, None)
            if stream is None or getattr(stream, "closed", False) or name not in self.own_outputs:
                self.own_outputs[name] = self.open_output(fd)
                setattr(sys, name, self.own_outputs[name])
                setattr(sys, f"__{name}__", self.own_outputs[name])

    @staticmethod
    def open_output(fd):
        errors = "surrogateescape" if fd == 1 else "backslashreplace"
        raw = io.FileIO(fd, "wb", closefd=False)
        return io.TextIOWrapper(io.BufferedWriter(raw, 64 * 1024), "utf-8", errors, line_buffering=True)

    def drop_old_input(self):
        waiting = select.poll()
        waiting.register(self.kept[0], select.POLLIN)
        for _ in range(64):
            events = waiting.poll(0)
            if not events or not events[0][1] & select.POLLIN or not os.read(self.kept[0], 64 * 1024):
                return

    def flush(self):
        for stream in (sys.stdout, sys.stderr, *self.own_outputs.values()):
            try:
                stream.flush()
            except Exception:
                pass


class Interrupts:
    """Turns SIGINT into KeyboardInterrupt only while a cell's own code is on the stack."""

    def __init__(self, user_code):
        self.user_code = user_code
        self.cell_active = False
        self.pending = False
        self.raised = False

    def arm(self):
        signal.signal(signal.SIGINT, self.handle)

    def handle(self, _number, frame):
        while frame is not None:
            if frame.f_code is self.user_code:
                self.raised = True
                raise KeyboardInterrupt
            frame = frame.f_back
        if self.cell_active:
            self.pending = True

    def begin_cell(self, cell_id):
        """The host sends its interrupt message before the signal, so one that came too early is found here."""
        self.pending = self.raised = False
        self.cell_active = True
        poll = select.poll()
        poll.register(CONTROL_IN, select.POLLIN)
        while any(event & select.POLLIN for _, event in poll.poll(0)):
            message = receive()
            if message.get("type") == "interrupt" and message.get("id") == cell_id:
                self.pending = True


def renew_random_state(_number, _frame):
    """This process is now a copy of one that went on elsewhere: what it draws from here on is its own."""
    for name, reseed in (("random", lambda module: module.seed()), ("numpy", lambda module: module.random.seed())):
        try:
            if name in sys.modules:
                reseed(sys.modules[name])
        except Exception:
            pass


def load_ahead(names):
    """Modules that most cells of this image begin with. What they bind stays theirs: a cell imports them as ever."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            pass


class Kernel:
    def __init__(self):
        self.pid = os.getpid()
        self.cells = 0
        self.flags = 0
        self.loop = None
        self.module = types.ModuleType("__main__")
        self.module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self.module
        sys.argv = [""]
        sys.path[0] = ""
        self.streams = StandardStreams()
        self.interrupts = Interrupts(Kernel.run_user_code.__code__)
        self.interrupts.arm()
        signal.signal(signal.SIGURG, renew_random_state)
        self.displays = python_display.Displays()
        self.program = None

    def compile_cell(self, source, name):
        """Code objects of the cell: its statements, and its last expression if it ends with one."""
        flags = self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        statements = compile(tree, name, "exec", flags, True)
        self.flags |= statements.co_flags & FUTURE_FLAGS
        if last is None:
            return statements, None
        return statements, compile(last, name, "eval", flags | self.flags, True)

    def run_user_code(self, source, name):
        """Everything that runs code of the cell happens below this frame: here, and only here, SIGINT interrupts."""
        if self.interrupts.pending:
            self.interrupts.raised = True
            raise KeyboardInterrupt
        try:
            statements, last = self.compile_cell(source, name)
            self.evaluate(statements)
            value = None if last is None else self.evaluate(last)
            shown = (None, None) if value is None else shown_value(value)
            if value is not None:
                self.displays.show_object(value, with_text=False)
        except KeyboardInterrupt:
            self.displays.close_figures()  # drawing them could take as long as what was interrupted
            raise
        except BaseException:
            self.displays.show_figures()
            raise
        self.displays.show_figures()
        return shown

    def evaluate(self, code):
        result = eval(code, self.module.__dict__)
        return self.run_coroutine(result) if code.co_flags & CO_COROUTINE else result

    def run_coroutine(self, coroutine):
        """One loop for all cells, running only meanwhile, so that asyncio.run works in the next cell."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass
            elif not task.cancelled():
                task.exception()
            raise

    def execute(self, source):
        self.cells += 1
        name = f"<cell {self.cells}>"
        remember_source(name, self.cells, source)
        self.displays.begin()
        outcome = {"status": "ok", "value": None, "value_characters": None, "results": [], "error": None, "exit_code": None}
        try:
            value, characters = self.run_user_code(source, name)
            outcome.update(value=value, value_characters=characters)
        except SystemExit as exit:
            outcome["exit_code"] = exit_code_of(exit)
            if outcome["exit_code"] != 0:
                outcome.update(status="error", error=describe(exit))
        except KeyboardInterrupt as interrupt:
            status = "interrupted" if self.interrupts.raised else "error"
            outcome.update(status=status, error=describe(interrupt))
        except BaseException as error:
            outcome.update(status="error", error=describe(error))
        outcome["results"] = self.displays.end()
        return outcome

    def serve(self):
        send({"type": "ready", "version": sys.version.split()[0]})
        while True:
            try:
                request = receive()
                if request.get("type") == "execute":
                    self.serve_cell(request)
            except KeyboardInterrupt:
                continue

    def serve_cell(self, request):
        cpu_before = cpu_ms()
        self.interrupts.begin_cell(request["id"])
        self.interrupts.arm()
        with_input = request.get("stdin", False)
        self.streams.prepare(with_input)
        if with_input:
            send({"type": "stdin_ready", "id": request["id"]})  # what came before was meant for an earlier cell
        tools = request.get("tools")
        calls = None if tools is None else self.begin_program(request["id"], tools)
        outcome = self.execute(request["code"])
        self.interrupts.cell_active = False
        if calls is not None and os.getpid() == self.pid:
            self.program.calls = None
            calls.close()
        self.streams.flush()
        if os.getpid() != self.pid:
            leave_forked_child(outcome)
        if sys.getrecursionlimit() < 200:
            sys.setrecursionlimit(1000)
        send_result(id=request["id"], cpu_ms=cpu_ms() - cpu_before, **outcome)

    def begin_program(self, cell_id, tools):
        """What the cell finds as `tools` and `ToolError`. Loaded only now: most sessions never run a program."""
        global python_tools
        if python_tools is None:
            # What a cell has put in the way of modules is not in the way of this one.
            sys.path.insert(0, KERNEL_FOLDER)
            python_tools = importlib.import_module("python_tools")
            sys.path.remove(KERNEL_FOLDER)
        if self.program is None:
            self.program = python_tools.Program()
        namespace = self.module.__dict__
        namespace["tools"] = python_tools.tools_of(tools, self.program)
        namespace["ToolError"] = python_tools.ToolError
        self.program.calls = python_tools.Calls(cell_id, CONTROL_IN, send, receive)
        return self.program.calls


def leave_forked_child(outcome):
    """A cell called os.fork and its child came out at the end: only the kernel itself may answer."""
    if outcome["error"] is not None and outcome["exit_code"] is None:
        os.write(2, outcome["error"]["traceback"].encode("utf-8", "backslashreplace"))
    failed = 1 if outcome["error"] is not None else 0
    os._exit(failed if outcome["exit_code"] is None else outcome["exit_code"])


def cpu_ms():
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return round(total * 1000)


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


def below_kernel(trace):
    """The traceback from the cell's first frame on; without one, from behind this file's frames."""
    start = trace
    while start is not None and not start.tb_frame.f_code.co_filename.startswith("<cell "):
        start = start.tb_next
    if start is not None:
        return start
    while trace is not None and trace.tb_frame.f_code.co_filename in KERNEL_FILES:
        trace = trace.tb_next
    return trace


def leave_out_kernel(described, depth):
    """Frames of this file can also end a traceback, as that of an interrupt, or stand in a chained one."""
    if described is None or depth > 50:
        return
    described.stack[:] = [frame for frame in described.stack if frame.filename not in KERNEL_FILES]
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


def main():
    for fd in (CONTROL_IN, CONTROL_OUT):
        os.set_inheritable(fd, False)
    wanted = sys.argv[1:]
    kernel = Kernel()
    load_ahead(wanted)
    kernel.serve()


main()
