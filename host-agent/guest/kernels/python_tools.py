"""The tools of a program: functions whose calls leave the sandbox and return with what came back.

One thread owns the control pair while a program runs: whatever else is interrupted, no message is ever cut in two.
"""

import asyncio
import collections
import fcntl
import inspect
import json
import os
import queue
import select
import signal
import threading
import time

MAX_ARGUMENTS_BYTES = 1024 * 1024
MAX_OUTSTANDING = 32
MAX_DEPTH = 64
MAX_EXACT_INTEGER = 2**53 - 1
KEPT_FD_FLOOR = 200
FIRST_LOOK_S = 0.03
LAST_LOOK_S = 1.0


class ToolError(Exception):
    """A call of a tool that gave no result. `code` says why, for a program to tell apart."""

    __module__ = "__main__"  # where programs find it

    def __init__(self, code, message, tool=None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.tool = tool

    def __str__(self):
        return f"{self.code}: {self.message}"

    def __reduce__(self):
        return ToolError, (self.code, self.message, self.tool)


class Request:
    __slots__ = ("name", "arguments", "deliver")

    def __init__(self, name, arguments, deliver):
        self.name = name
        self.arguments = arguments
        self.deliver = deliver


class Calls:
    """The calls of one program. Everything but `begin` and `close` happens in its own thread."""

    def __init__(self, cell_id, control_in, send, receive):
        self.cell_id = cell_id
        self.control_in = control_in
        self.send = send
        self.receive = receive
        self.pid = os.getpid()
        self.loops = set()
        self.ended = False
        self.requests = queue.SimpleQueue()
        self.backlog = collections.deque()
        self.outstanding = {}
        self.last_call = 0
        self.look_at = None
        self.look_after = FIRST_LOOK_S
        self.said = None
        self.seen_cpu = None
        self.wake_out, self.wake_in = (self.kept(fd) for fd in os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK))
        self.thread = threading.Thread(target=self.run, name="tools", daemon=True)
        # SIGINT is for the thread that runs the cell.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @staticmethod
    def kept(fd):
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, KEPT_FD_FLOOR)
        os.close(fd)
        return high

    def begin(self, name, arguments, deliver):
        if os.getpid() != self.pid:
            raise ToolError("wrong_process", "tools are called from the process of the program only", name)
        if self.ended:
            raise ToolError("program_ended", "the program that could call this tool has ended", name)
        self.requests.put(Request(name, arguments, deliver))
        self.wake()
        if self.ended:
            raise ToolError("program_ended", "the program ended with this call", name)

    def wake(self):
        try:
            os.write(self.wake_in, b"\0")
        except OSError:
            pass  # full: the thread is about to look anyway

    def close(self):
        """No byte of the control pair is touched by the thread from now on."""
        self.ended = True
        self.wake()
        self.thread.join()
        for request in (*self.outstanding.values(), *self.backlog, *self.drained()):
            self.answer(request, {"error": {"code": "program_ended", "message": "the program has ended"}})
        os.close(self.wake_out)
        os.close(self.wake_in)

    def drained(self):
        while True:
            try:
                yield self.requests.get_nowait()
            except queue.Empty:
                return

    def run(self):
        poll = select.poll()
        poll.register(self.wake_out, select.POLLIN)
        poll.register(self.control_in, select.POLLIN)
        while not self.ended:
            ready = {fd for fd, _ in poll.poll(self.patience_ms())}
            if self.wake_out in ready:
                os.read(self.wake_out, 4096)
            if self.ended:
                return
            for request in self.drained():
                self.backlog.append(request)
            if self.control_in in ready:
                self.take(self.receive())
            self.send_some()
            self.look()

    def take(self, message):
        # An interrupt comes as a signal too, which the thread of the cell takes.
        if message.get("type") != "tool_result" or message.get("id") != self.cell_id:
            return
        request = self.outstanding.pop(message["call"], None)
        if request is not None:
            self.answer(request, message)
        self.moved()

    @staticmethod
    def answer(request, message):
        try:
            request.deliver(message)
        except Exception:
            pass  # whoever waited is gone

    def send_some(self):
        while self.backlog and len(self.outstanding) < MAX_OUTSTANDING:
            request = self.backlog.popleft()
            self.last_call += 1
            self.outstanding[self.last_call] = request
            head = {"type": "tool_call", "id": self.cell_id, "call": self.last_call, "name": request.name}
            self.send({**head, "arguments": len(request.arguments)}, (request.arguments,))
            self.moved()

    # Whether all that the program does is wait.

    def moved(self):
        self.said = None
        self.seen_cpu = None
        self.look_after = FIRST_LOOK_S
        self.look_at = time.monotonic() + self.look_after if self.outstanding else None

    def patience_ms(self):
        if self.look_at is None:
            return None
        return max(1, int((self.look_at - time.monotonic()) * 1000) + 1)

    def look(self):
        if self.look_at is None or time.monotonic() < self.look_at:
            return
        if self.waits():
            rests = not self.has_timers()
            if self.said != rests:
                self.said = rests
                self.send({"type": "waiting", "id": self.cell_id, "rests": rests})
        self.look_after = min(2 * self.look_after, LAST_LOOK_S)
        # What is said holds until something moves; a timer that is gone may let it say more.
        self.look_at = None if self.said else time.monotonic() + self.look_after

    def waits(self):
        """No other thread of this process runs now, nor has any run since the last look."""
        own = str(threading.get_native_id())
        cpu = {}
        for thread in os.listdir("/proc/self/task"):
            if thread == own:
                continue
            try:
                with open(f"/proc/self/task/{thread}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "R":
                self.seen_cpu = None
                return False
            cpu[thread] = (fields[11], fields[12])
        before, self.seen_cpu = self.seen_cpu, cpu
        return before == cpu

    def has_timers(self):
        for loop in list(self.loops):
            if loop.is_closed() or not loop.is_running():
                self.loops.discard(loop)
            elif any(not handle.cancelled() for handle in getattr(loop, "_scheduled", ())):
                return True
        return False

    # The two ways to call.

    def call(self, name, arguments):
        done = threading.Event()
        answers = []

        def deliver(message):
            answers.append(message)
            done.set()

        self.begin(name, encoded(name, arguments), deliver)
        done.wait()
        return unpacked(name, answers[0])

    async def call_async(self, name, arguments):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.loops.add(loop)

        def settle(message):
            if not future.done():
                future.set_result(message)

        self.begin(name, encoded(name, arguments), lambda message: loop.call_soon_threadsafe(settle, message))
        return unpacked(name, await future)


def encoded(name, arguments):
    check(name, arguments)
    data = json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > MAX_ARGUMENTS_BYTES:
        message = f"the arguments have {len(data)} bytes as JSON, at most {MAX_ARGUMENTS_BYTES} leave the sandbox"
        raise ToolError("arguments_too_large", message, name)
    return data


def check(name, value, depth=0):
    """What would not arrive as it is goes nowhere."""
    if depth > MAX_DEPTH:
        raise ToolError("invalid_arguments", f"the arguments have more than {MAX_DEPTH} levels", name)
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise ToolError("invalid_arguments", f"a key of the arguments is no text: {key!r}", name)
            check(name, one, depth + 1)
    elif isinstance(value, (list, tuple)):
        for one in value:
            check(name, one, depth + 1)
    elif isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        raise ToolError("invalid_arguments", "an integer beyond 2**53 - 1: give it as text", name)


def unpacked(name, message):
    error = message.get("error")
    if error is not None:
        raise ToolError(error["code"], error["message"], name)
    return message.get("result")


class Type:
    """A type as a signature shows it."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


class Namespace:
    """Tools below one part of their names."""

    def __init__(self, title):
        self.__dict__["_title"] = title

    def __repr__(self):
        return f"<{self._title}: {', '.join(names_in(self))}>"

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"{self._title} has no {name}; it has {', '.join(names_in(self)) or 'nothing'}")


def names_in(namespace):
    return sorted(name for name in vars(namespace) if not name.startswith("_"))


class Program:
    """Calls of the program that runs: `tools` of an earlier one goes on to work in a later one that has its names."""

    def __init__(self):
        self.calls = None

    def current(self, name):
        if self.calls is None:
            raise ToolError("program_ended", "the program that could call this tool has ended", name)
        return self.calls


def tools_of(listed, program, arguments):
    def call(name, arguments=None):
        """Calls a tool by its whole name, with its arguments in a dict."""
        return program.current(name).call(name, {} if arguments is None else arguments)

    async def call_async(name, arguments=None):
        """Calls a tool by its whole name, with its arguments in a dict; to be awaited."""
        return await program.current(name).call_async(name, {} if arguments is None else arguments)

    root = Namespace("tools")
    twin = Namespace("tools.aio")
    root.call = call
    root.aio = twin
    twin.call = call_async
    root.arguments = arguments
    root.names = [tool["name"] for tool in listed]
    root.__doc__ = twin.__doc__ = "\n\n".join(tool["documentation"] for tool in listed)
    # The shorter paths first: a tool may stand where others are below it.
    for tool in sorted(listed, key=lambda one: len(one["path"])):
        function, awaited = functions_of(tool, program)
        place(root, tool["path"], function)
        place(twin, tool["path"], awaited)
    return root


def place(root, path, function):
    node = root
    for depth, part in enumerate(path[:-1]):
        known = vars(node).get(part)
        if known is None:
            known = Namespace(".".join([root._title, *path[: depth + 1]]))
            setattr(node, part, known)
        node = known
    setattr(node, path[-1], function)


def functions_of(tool, program):
    name = tool["name"]
    parameters = tool["parameters"]
    required = {one["name"] for one in parameters or () if one["required"]}

    def arguments_of(given, named):
        if parameters is None:
            if len(given) > 1 or (given and named) or (given and not isinstance(given[0], dict)):
                raise TypeError(f"{name} takes its arguments in one dict")
            return dict(given[0]) if given else named
        if len(given) == 1 and not named and isinstance(given[0], dict) and not takes_dict(parameters):
            return dict(given[0])
        if len(given) > len(parameters):
            raise TypeError(f"{name} takes {len(parameters)} arguments, {len(given)} were given")
        arguments = {one["name"]: value for one, value in zip(parameters, given)}
        for key, value in named.items():
            if key in arguments:
                raise TypeError(f"{name} was given {key} twice")
            arguments[key] = value
        return {key: value for key, value in arguments.items() if value is not None or key in required}

    def function(*given, **named):
        return program.current(name).call(name, arguments_of(given, named))

    async def awaited(*given, **named):
        return await program.current(name).call_async(name, arguments_of(given, named))

    function.aio = awaited
    for one in (function, awaited):
        one.__name__ = tool["path"][-1]
        one.__qualname__ = ".".join(("tools", *tool["path"]))
        one.__module__ = "tools"
        one.__doc__ = tool["documentation"]
        one.__signature__ = signature_of(tool)
    return function, awaited


def takes_dict(parameters):
    return len(parameters) > 0 and (parameters[0]["type"].startswith("dict") or parameters[0]["type"] == "Any")


def signature_of(tool):
    kinds = inspect.Parameter
    if tool["parameters"] is None:
        only = kinds("arguments", kinds.POSITIONAL_ONLY, annotation=Type("dict[str, Any]"))
        return inspect.Signature([only], return_annotation=Type(tool["returns"]))
    parameters = [
        kinds(
            one["name"],
            kinds.KEYWORD_ONLY,
            annotation=Type(one["type"]),
            default=kinds.empty if one["required"] else None,
        )
        for one in tool["parameters"]
    ]
    return inspect.Signature(parameters, return_annotation=Type(tool["returns"]))
