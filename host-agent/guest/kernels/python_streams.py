"""The standard streams, which belong to the cells."""

import fcntl
import io
import os
import select
import sys

KEPT_FD_FLOOR = 200


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
