#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples that are programs, from outside: tests/examples/run.py BUILD [NAME...]

Servers listen on free ports of this machine and have to end well at SIGTERM. Nothing here is a race against the clock: a
limit is what a hang takes, never what a slow machine could need. Prints "ok NAME" or "FAIL NAME: reason" for each case,
"skip NAME: reason" where a tool is missing, then "N passed, M failed".
"""
import contextlib
import hashlib
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 60  # seconds
CASES = []
BUILD = None


class Failure(Exception):
    """The reason on the first line; what else there is to show on the others."""


class Skip(Exception):
    """What is missing."""


def case(function):
    CASES.append((function.__name__.replace("__", "/"), function))
    return function


def must(holds, reason, *shown):
    if not holds:
        raise Failure("\n".join([reason, *(str(item) for item in shown)]))


# ---- programs --------------------------------------------------------------------------------------------------------

def program(name):
    return str(BUILD / "examples" / name)


def output_of(*command, code=0):
    """What a program prints that ends by itself."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT)
    output = done.stdout.decode(errors="replace")
    must(done.returncode == code, f"{os.path.basename(command[0])}: exit code {done.returncode}", output)
    return output


def must_match(pattern, output):
    must(re.fullmatch(pattern, output), "prints something else", f"expected: {pattern}", f"printed: {output}")


@contextlib.contextmanager
def server(name, *arguments, files=None, end=signal.SIGTERM):
    """An example that serves; gives its address. At the end of the block it gets a signal and has to end well."""
    limit = f"ulimit -n {files} && " if files else ""
    command = ["sh", "-c", f'{limit}exec "$@"', "sh", program(name), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    watch = threading.Timer(2 * LIMIT, process.kill)
    watch.start()
    try:
        line = process.stdout.readline().decode()
        must(line.startswith("listening on "), f"{name}: does not listen", line)
        yield line.split()[-1]
        process.send_signal(end)
        rest = process.stdout.read().decode(errors="replace")
        code = process.wait()
        must((code, rest) == (0, "stopped\n"), f"{name}: ends with {code}", rest)
    except (Failure, OSError) as failure:
        process.kill()
        raise Failure(f"{failure}\n{name} printed: {process.stdout.read().decode(errors='replace')}") from None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        watch.cancel()


def connect(address):
    host, port = address.rsplit(":", 1)
    return no_delay(socket.create_connection((host, int(port)), LIMIT))


def no_delay(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_to_end(connection):
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


# ---- http_hello ------------------------------------------------------------------------------------------------------

OK, BAD, METHOD = "200 OK", "400 Bad Request", "405 Method Not Allowed"
TOO_LARGE, TOO_LONG, FIELDS = "413 Content Too Large", "414 URI Too Long", "431 Request Header Fields Too Large"
UNKNOWN, VERSION, LATE = "501 Not Implemented", "505 HTTP Version Not Supported", "408 Request Timeout"

GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
POST = "POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + "Transfer-Encoding: chunked\r\n\r\n"

# What is sent, and the status lines that come back. After an error, HTTP/1.0 or Connection: close the server hangs up.
STAYS = {
    "get": (GET, [OK]),
    "head": ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", [OK]),
    "empty-line-before": ("\r\n\r\n" + GET, [OK]),
    "any-target": ("GET http://a/b?c=%20#d HTTP/1.1\r\nHost: a\r\n\r\n", [OK]),
    "later-minor-version": ("GET / HTTP/1.7\r\nHost: a\r\n\r\n", [OK]),
    "names-in-any-case": ("POST / HTTP/1.1\r\nhOST:a\r\ncONTENT-lENGTH:4\r\n\r\nbody", [METHOD]),
    "other-methods": (POST + "\r\nBREW / HTTP/1.1\r\nHost: a\r\n\r\nget / HTTP/1.1\r\nHost: a\r\n\r\n", [METHOD] * 3),
    "http-1.0-keep-alive": ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", [OK]),
    "pipelined": (GET * 3 + "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + GET, [OK] * 5),
    "body": (POST + "Content-Length: 27\r\n\r\n" + GET[:27] + GET, [METHOD, OK]),
    "empty-body": (POST + "Content-Length: 0\r\n\r\n" + GET, [METHOD, OK]),
    "get-with-body": ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + GET, [OK, OK]),
    "chunks": (CHUNKED + "4\r\nbody\r\n00A;x=\"y z\"\r\n0123456789\r\n0\r\n\r\n" + GET, [METHOD, OK]),
    "chunks-with-trailer": (CHUNKED + "1;\r\na\r\n0\r\nExpires: never\r\nContent-Length: 9\r\n\r\n" + GET, [METHOD, OK]),
    "other-alphabets": ("GET / HTTP/1.1\r\nHost: a\r\nX:\t\u00e4\u6f22 \t\r\nY:\r\n\r\n", [OK]),
    "a-hundred-fields": ("GET / HTTP/1.1\r\nHost: a\r\n" + "A: b\r\n" * 99 + "\r\n", [OK]),
    "connection-is-a-list": ("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed, x,, keep-alive\r\n\r\n", [OK]),
}
ENDS = {
    "close": (LAST, [OK]),
    "close-in-a-list": ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x , CLOSE\r\n\r\n" + GET, [OK]),
    "http-1.0": ("GET / HTTP/1.0\r\n\r\n" + GET, [OK]),
    "pipelined-then-bad": (GET * 2 + "nonsense\r\n" + GET, [OK, OK, BAD]),
    "no-request-line": ("\r\n: /\r\n\r\n", [BAD]),
    "http-0.9": ("GET /\r\n\r\n", [BAD]),
    "http-2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [VERSION]),
    "http-0": ("GET / HTTP/0.9\r\n\r\n", [VERSION]),
    "not-http": ("GET / FTP/1.1\r\n\r\n", [BAD]),
    "two-digits": ("GET / HTTP/1.10\r\n\r\n", [BAD]),
    "two-spaces": ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", [BAD]),
    "space-at-end": ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", [BAD]),
    "tabs": ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", [BAD]),
    "bad-method": ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", [BAD]),
    "control-in-target": ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", [BAD]),
    "bare-lf": ("GET / HTTP/1.1\nHost: a\n\n", [BAD]),
    "bare-lf-in-fields": ("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", [BAD]),
    "bare-cr": ("GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", [BAD]),
    "nul": ("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", [BAD]),
    "folded": ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", [BAD]),
    "space-before-colon": ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", [BAD]),
    "no-colon": ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", [BAD]),
    "no-name": ("GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", [BAD]),
    "no-host": ("GET / HTTP/1.1\r\n\r\n", [BAD]),
    "two-hosts": ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", [BAD]),
    "length-twice": (POST + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody", [BAD]),
    "length-list": (POST + "Content-Length: 4, 4\r\n\r\nbody", [BAD]),
    "length-signed": (POST + "Content-Length: +4\r\n\r\nbody", [BAD]),
    "length-hex": (POST + "Content-Length: 0x4\r\n\r\nbody", [BAD]),
    "length-empty": (POST + "Content-Length:\r\n\r\nbody", [BAD]),
    "length-and-chunks": (POST + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [BAD]),
    "chunks-and-length": (POST + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", [BAD]),
    "chunks-twice": (POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [BAD]),
    "chunks-in-http-1.0": ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [BAD]),
    "unknown-encoding": (POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [UNKNOWN]),
    "nearly-chunked": (POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", [UNKNOWN]),
    "body-too-large": (POST + "Content-Length: 1048577\r\n\r\n", [TOO_LARGE]),
    "length-overflows": (POST + "Content-Length: 18446744073709551617\r\n\r\na", [TOO_LARGE]),
    "chunk-too-large": (CHUNKED + "100001\r\n", [TOO_LARGE]),
    "chunk-overflows": (CHUNKED + "10000000000000001\r\na\r\n0\r\n\r\n", [BAD]),
    "chunk-without-size": (CHUNKED + "\r\n", [BAD]),
    "chunk-size-signed": (CHUNKED + "-1\r\n", [BAD]),
    "chunk-size-0x": (CHUNKED + "0x1\r\na\r\n0\r\n\r\n", [BAD]),
    "chunk-size-space": (CHUNKED + "1 \r\na\r\n0\r\n\r\n", [BAD]),
    "chunk-bare-lf": (CHUNKED + "1\na\r\n0\r\n\r\n", [BAD]),
    "chunk-too-long": (CHUNKED + "1\r\nab\r\n0\r\n\r\n", [BAD]),
    "chunk-extension-too-long": (CHUNKED + "1;" + "x" * 300 + "\r\na\r\n", [BAD]),
    "bad-trailer": (CHUNKED + "0\r\n x\r\n\r\n", [BAD]),
    "long-target": ("GET /" + "x" * 9000 + " HTTP/1.1\r\nHost: a\r\n\r\n", [TOO_LONG]),
    "long-field": ("GET / HTTP/1.1\r\nHost: a\r\nX: " + "x" * 9000 + "\r\n\r\n", [FIELDS]),
    "long-head": ("GET / HTTP/1.1\r\nHost: a\r\n" + f"X: {'x' * 200}\r\n" * 45 + "\r\n", [FIELDS]),
    "too-many-fields": ("GET / HTTP/1.1\r\nHost: a\r\n" + "A: b\r\n" * 100 + "\r\n", [FIELDS]),
}


class Client:
    """One connection to http_hello."""

    def __init__(self, address):
        self.connection = connect(address)
        self.answers = self.connection.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.connection.close()

    def send(self, text, sizes=None):
        data = text.encode()
        for piece in sizes or [len(data)]:
            self.connection.sendall(data[:piece])
            data = data[piece:]
            if data and len(sizes) < 9:
                time.sleep(0.002)  # so that they likely come one by one

    def answer(self, with_body=True):
        """The next status, after a look at the rest of the answer."""
        line = self.answers.readline().decode()
        must(re.fullmatch(r"HTTP/1\.1 \d{3} [\w ]+\r\n", line), "not a status line", repr(line))
        fields = {}
        while (field := self.answers.readline().decode()) != "\r\n":
            must(re.fullmatch(r"[\w-]+: .*\r\n", field), "not a field", repr(field))
            fields[field.split(":")[0]] = field.split(": ", 1)[1].strip()
        self.fields = fields
        status = line[9:].strip()
        expected = "Hello, World!" if status == OK else ""
        if status != "100 Continue":
            must(fields["Content-Length"] == str(len(expected)) and "Date" in fields, "odd fields", fields)
            body = self.answers.read(len(expected)).decode() if with_body else expected
            must(body == expected, "another body", repr(body))
        return status

    def must_answer(self, expected, heads):
        got = [self.answer(not head) for _, head in zip(expected, heads)]
        must(got == expected, "other answers", f"expected: {expected}", f"got: {got}")

    def must_stay(self):
        self.send(LAST)
        must(self.answer() == OK and self.fields["Connection"] == "close", "does not stay open")
        self.must_end()

    def must_end(self):
        rest = self.answers.read()
        must(rest == b"", "there is more", rest)


def heads_of(text, count):
    """Which of the answers have no body."""
    methods = re.findall(r"^(\w+) \S+ HTTP/", text.replace("\r\n", "\n"), re.M)
    return [method == "HEAD" for method in methods + [""] * count]


def exchange(address, text, expected, stays, sizes=None):
    with Client(address) as client:
        client.send(text, sizes)
        client.must_answer(expected, heads_of(text, len(expected)))
        client.must_stay() if stays else client.must_end()


def try_table(table, stays):
    with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000)) as address:
        for name, (text, expected) in table.items():
            size = len(text.encode())
            try:
                exchange(address, text, expected, stays)
                exchange(address, text, expected, stays, [size // 3, size // 3, size - 2 * (size // 3)])
                exchange(address, text, expected, stays, [size - 1, 1])
                if size < 1000:
                    exchange(address, text, expected, stays, [1] * size)
            except (Failure, OSError) as failure:
                raise Failure(f"{name}: {failure}") from None


@case
def http_hello__answers_and_stays():
    try_table(STAYS, True)


@case
def http_hello__answers_and_hangs_up():
    try_table(ENDS, False)


@case
def http_hello__a_thousand_at_once():
    with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000)) as address, Client(address) as client:
        client.send(GET * 999 + LAST)
        client.must_answer([OK] * 1000, [False] * 1000)
        client.must_end()


@case
def http_hello__the_answer_is_read_before_the_end():
    """What was sent after a bad request does not make the kernel forget the answer."""
    with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000)) as address:
        for _ in range(20):
            exchange(address, "nonsense\r\n" + "x" * (1 << 18), [BAD], False)


@case
def http_hello__half_closed():
    with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000)) as address, Client(address) as client:
        client.send(GET * 2 + GET[:20])
        client.connection.shutdown(socket.SHUT_WR)
        client.must_answer([OK, OK], [False, False])
        client.must_end()


@case
def http_hello__expect_continue():
    with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000)) as address, Client(address) as client:
        client.send(POST + "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        must(client.answer() == "100 Continue", "no 100")
        client.send("body")
        must(client.answer() == METHOD, "no answer after the body")
        client.must_stay()


@case
def http_hello__patience_ends():
    with server("http_hello", "127.0.0.1:0", "500") as address:
        with Client(address) as idle:
            idle.must_end()
        for text in (GET[:20], POST + "Content-Length: 4\r\n\r\nbod"):
            must(any(is_late(address, text) for _ in range(5)), "no 408", text)
        drip(address)


def is_late(address, text):
    """False: it was us who were late, and what we sent did not find anybody."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError), Client(address) as slow:
        slow.send(text)
        if not slow.answers.peek():
            return False
        must(slow.answer() == LATE, "another answer than 408")
        slow.must_end()
        return True
    return False


def drip(address):
    """A byte now and then does not buy time."""
    with connect(address) as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(LIMIT * 100):
            connection.sendall(b"x")
            if select.select([connection], [], [], 0.01)[0]:
                return
        must(False, "it goes on for ever")


@case
def http_hello__out_of_descriptors():
    with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000), files=32) as address:
        exchange(address, GET, [OK], True)  # somebody has waited, so the runtime has what it needs for that
        clients = [Client(address) for _ in range(64)]
        for client in clients:
            client.send(LAST)
        for client in clients:
            with client:
                must(client.answer() == OK, "no answer")
                client.must_end()


@case
def http_hello__ends_at_a_signal():
    for number in (signal.SIGINT, signal.SIGTERM):
        with server("http_hello", "127.0.0.1:0", str(LIMIT * 1000), end=number) as address:
            clients = [Client(address) for _ in range(10)]
            for client in clients:
                client.send(GET)
                must(client.answer() == OK, "no answer")
        for client in clients:
            with client:
                client.must_end()


@case
def http_hello__wrk():
    if not shutil.which("wrk"):
        raise Skip("wrk")
    with server("http_hello", "127.0.0.1:0") as address:
        output = output_of("wrk", "-t", "2", "-c", "64", "-d", "3s", "--timeout", "30s", f"http://{address}/")
    must(re.search(r"^ +[1-9]\d* requests in", output, re.M), "no requests", output)
    must("Socket errors" not in output and "Non-2xx" not in output, "errors", output)


# ---- echo ------------------------------------------------------------------------------------------------------------

@case
def echo__sends_back():
    data = random.Random(1).randbytes(1 << 20)
    with server("echo", "127.0.0.1:0") as address, connect(address) as connection:
        sender = threading.Thread(target=send_and_end, args=(connection, data))
        sender.start()
        got = read_to_end(connection)
        sender.join()
    must(got == data, f"{len(got)} bytes came back, not the same {len(data)}")


def send_and_end(connection, data):
    with contextlib.suppress(OSError):  # shows in what arrives
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


@case
def echo__refuses_to_do_nothing():
    for words in ([], ["127.0.0.1:1", "0"], ["127.0.0.1:1", "1", "0"], ["127.0.0.1:1", "1", "-1"]):
        must_match(r"usage: echo .*\n", output_of(program("echo"), "--load", *words, code=2))


@case
def echo__load():
    must_match(r"64 clients: \d+ round trips/s, 0 wrong answers\n", output_of(program("echo")))
    with server("echo", "127.0.0.1:0") as address:
        output = output_of(program("echo"), "--load", address, "16", "1")
        must_match(r"16 clients: \d+ round trips/s, 0 wrong answers\n", output)


# ---- proxy -----------------------------------------------------------------------------------------------------------

class Target:
    """What the proxy leads to: a listener whose connections each go through talk(connection) in a thread."""

    def __init__(self, talk):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(LIMIT)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, args=(talk,), daemon=True)
        self.thread.start()

    def serve(self, talk):
        connection, _ = self.listener.accept()
        connection.settimeout(LIMIT)
        with connection:
            talk(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join(LIMIT)
        self.listener.close()


@contextlib.contextmanager
def proxied(talk):
    """A connection to the target through the proxy."""
    with Target(talk) as target, server("proxy", "127.0.0.1:0", target.address) as address, \
            connect(address) as connection:
        yield connection
        target.thread.join(LIMIT)  # before the proxy is told to end


SIZE = 8 << 20


def digest(data):
    return len(data), hashlib.sha256(data).hexdigest()


@case
def proxy__one_after_the_other():
    """The target speaks when the client has ended: the end arrives, and the way back stays open."""
    there, back, got = random.Random(2).randbytes(SIZE), random.Random(3).randbytes(SIZE), []

    def talk(connection):
        got.append(digest(read_to_end(connection)))
        connection.sendall(back)

    with proxied(talk) as connection:
        send_and_end(connection, there)
        must(digest(read_to_end(connection)) == digest(back), "the way back differs")
    must(got == [digest(there)], "the way there differs")


@case
def proxy__the_target_ends_first():
    there, back, got = random.Random(4).randbytes(SIZE), random.Random(5).randbytes(SIZE), []

    def talk(connection):
        send_and_end(connection, back)
        got.append(digest(read_to_end(connection)))

    with proxied(talk) as connection:
        must(digest(read_to_end(connection)) == digest(back), "the way back differs")
        send_and_end(connection, there)
        must(connection.recv(1) == b"", "no end")
    must(got == [digest(there)], "the way there differs")


@case
def proxy__both_at_once():
    there, back, got = random.Random(6).randbytes(SIZE), random.Random(7).randbytes(SIZE), []

    def both(connection, data):
        sender = threading.Thread(target=send_and_end, args=(connection, data))
        sender.start()
        got.append(digest(read_to_end(connection)))
        sender.join()

    with proxied(lambda connection: both(connection, back)) as connection:
        both(connection, there)
    must(sorted(got) == sorted([digest(there), digest(back)]), "they differ")


@case
def proxy__slows_down_whoever_is_not_read():
    done = threading.Event()
    with proxied(lambda connection: done.wait(LIMIT)) as connection:
        sent, piece, limit = 0, bytes(1 << 16), socket_memory() + (64 << 20)
        while sent < limit and select.select([], [connection], [], 1)[1]:
            sent += connection.send(piece)
        done.set()
    must(sent < limit, f"it takes {sent} bytes that nobody reads")


def socket_memory():
    """The most that the sockets of two connections hold."""
    try:
        files = [pathlib.Path(f"/proc/sys/net/ipv4/tcp_{way}mem") for way in "rw"]
        return 2 * sum(int(file.read_text().split()[2]) for file in files)
    except OSError:
        return 64 << 20


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@case
def proxy__passes_on_a_reset():
    """A connection that was cut must not look like one that has come to its end."""
    def talk(connection):
        connection.recv(1)
        reset(connection)

    with proxied(talk) as connection:
        connection.sendall(b"x")
        try:
            got = connection.recv(1)
        except ConnectionResetError:
            return
        must(False, f"got {got} instead of a reset")


@case
def proxy__no_target():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        nowhere = "127.0.0.1:%d" % bound.getsockname()[1]
        with server("proxy", "127.0.0.1:0", nowhere) as address, \
                contextlib.suppress(ConnectionResetError), connect(address) as connection:
            must(connection.recv(1) == b"", "somebody answers")


# ---- crawler ---------------------------------------------------------------------------------------------------------

SUMMARY = r"%d pages, %d broken, %s bytes; never more than 8 at a time\n"


@case
def crawler__its_own_site():
    must_match(r"404 http://127\.0\.0\.1:\d+/nowhere\n" + SUMMARY % (63, 1, 4217), output_of(program("crawler")))


@case
def crawler__given_addresses():
    with server("http_hello", "127.0.0.1:0") as address, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nowhere = "http://127.0.0.1:%d/x" % bound.getsockname()[1]
        output = output_of(program("crawler"), f"http://{address}/a", f"http://{address}/a#b", nowhere)
    must_match(rf"-111 {nowhere}\n" + SUMMARY % (1, 1, r"\d+"), output)


# ---- redis_pipeline --------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def redis_server(folder):
    path = os.path.join(folder, "redis.sock")
    command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + LIMIT
        while not answers(path):
            must(process.poll() is None and time.monotonic() < until, "redis-server does not start")
            time.sleep(0.05)
        yield f"unix:{path}"
    finally:
        process.terminate()
        process.wait()


def answers(path):
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(path) == 0


@case
def redis_pipeline__replies_in_order():
    if not shutil.which("redis-server"):
        raise Skip("redis-server")
    with tempfile.TemporaryDirectory(prefix="weft-redis-") as folder, redis_server(folder) as address:
        for goroutines, times in ((1, 1), (64, 100), (300, 20)):
            must_match(rf"{goroutines * times * 3} commands of {goroutines} goroutines over one connection: 0 wrong replies\n"
                       rf"counted to {goroutines * times}\n[1-9]\d* commands/s, [1-9]\d* in a write\n",
                       output_of(program("redis_pipeline"), address, str(goroutines), str(times)))


@case
def redis_pipeline__refuses_to_do_nothing():
    for numbers in (["0"], ["-1"], ["4", "0"], ["four"]):
        must_match(r"usage: redis_pipeline .*\n", output_of(program("redis_pipeline"), "127.0.0.1:1", *numbers, code=2))


@case
def redis_pipeline__no_server():
    with tempfile.TemporaryDirectory(prefix="weft-redis-") as folder:
        address = f"unix:{folder}/none"
        must_match(rf"{address}: No such file or directory\n", output_of(program("redis_pipeline"), address, code=1))


@case
def redis_pipeline__a_server_that_hangs_up():
    """In the middle of a reply."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)

        def talk():
            connection, _ = listener.accept()
            with connection:
                connection.recv(10)
                connection.sendall(b"+O")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        output = output_of(program("redis_pipeline"), address, code=1)
        thread.join(LIMIT)
    must_match(rf"{address}: (Broken pipe|Connection reset by peer)\n", output)


# ---- all together ----------------------------------------------------------------------------------------------------

def verdict(name, function):
    try:
        function()
        return "ok", f"ok {name}"
    except Skip as skip:
        return "skip", f"skip {name}: there is no {skip} here (tools/setup.sh test installs it)"
    except (Failure, OSError, subprocess.TimeoutExpired) as failure:
        reason, _, details = f"{failure}".partition("\n")
        return "FAIL", "\n    ".join([f"FAIL {name}: {reason}", *details.rstrip("\n").split("\n")])


def main():
    global BUILD
    if len(sys.argv) < 2:
        sys.exit("usage: run.py BUILD [NAME...]")
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    count = {"ok": 0, "FAIL": 0, "skip": 0}
    for name, function in CASES:
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        status, line = verdict(name, function)
        count[status] += 1
        print(line, flush=True)
    skipped = f", {count['skip']} skipped" if count["skip"] else ""
    print(f"{count['ok']} passed, {count['FAIL']} failed{skipped}")
    return count["FAIL"] != 0


if __name__ == "__main__":
    sys.exit(main())
