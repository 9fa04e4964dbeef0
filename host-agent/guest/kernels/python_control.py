"""What the kernel and the host say to each other: u32 big-endian length and a message, on a pair of its own."""

import json
import os

CONTROL_IN = 198
CONTROL_OUT = 199
MAX_REQUEST_BYTES = 16 * 1024 * 1024


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
