"""The Python kernel of a sandbox: runs cells one after another in one namespace.

Speaks on the control pair, never on the standard streams: those belong to the cells.
Everything in this process can be reached by the cells, so nothing here is a boundary; it is only kept out of their way.
"""

import ast
import builtins
import importlib
import os
import resource
import select
import signal
import sys
import types

import python_display
from python_control import CONTROL_IN, CONTROL_OUT, receive, send, send_result
from python_describe import describe, exit_code_of, remember_source, shown_value
from python_streams import StandardStreams

CO_COROUTINE = 0x80
FUTURE_FLAGS = 0
for _name in __import__("__future__").all_feature_names:
    FUTURE_FLAGS |= getattr(__import__("__future__"), _name).compiler_flag
KERNEL_FOLDER = os.path.dirname(os.path.abspath(__file__))
python_tools = None


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
    for name, reseed in (
        ("random", lambda module: module.seed()),
        ("numpy", lambda module: module.random.seed()),
        # A generator of its own makes the names of temporary files.
        ("tempfile", lambda module: setattr(module, "_name_sequence", module._RandomNameSequence())),
        # OpenSSL draws on from the state that it has, and does not see that there are two of it.
        ("_ssl", lambda module: module.RAND_add(os.urandom(48), 48.0)),
    ):
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
        calls = None if tools is None else self.begin_program(request["id"], tools, request.get("arguments", {}))
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

    def begin_program(self, cell_id, tools, arguments):
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
        namespace["tools"] = python_tools.tools_of(tools, self.program, arguments)
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


def main():
    for fd in (CONTROL_IN, CONTROL_OUT):
        os.set_inheritable(fd, False)
    wanted = sys.argv[1:]
    kernel = Kernel()
    load_ahead(wanted)
    kernel.serve()


main()
