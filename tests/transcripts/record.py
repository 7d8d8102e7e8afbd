#!/usr/bin/env python3
"""Fills in the replies of a transcript from a live Redis server.

    redis-server --port 7777 --save '' --appendonly no &
    tests/transcripts/record.py 7777 tests/transcripts/string.txt

Keeps commands, directives and comments, replaces all replies. The format is described at
`replay` in src/command/testing.rs. Flushes the server.
"""

import re
import socket
import sys
import time

MARK = b"end-of-reply"


class Server:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))

    def call(self, words):
        """Sends a command and an ECHO behind it: what arrives before the echo is the reply."""
        self.sock.sendall(encode(words) + encode([b"ECHO", MARK]))
        end = b"$%d\r\n%s\r\n" % (len(MARK), MARK)
        reply = b""
        while not reply.endswith(end):
            chunk = self.sock.recv(1 << 20)
            if not chunk:
                raise ConnectionError(f"closed after {words}")
            reply += chunk
        return reply[: -len(end)]


def encode(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def split_words(line):
    token = re.compile(rb'\\x([0-9a-fA-F]{2})|\\(.)|(")|( )|([^\\" ]+)')
    words, word, quoted = [], None, False
    for hex_, char, quote, space, plain in token.findall(line.encode()):
        if space and not quoted:
            words, word = words + ([word] if word is not None else []), None
            continue
        word = word if word is not None else b""
        if quote:
            quoted = not quoted
        elif hex_:
            word += bytes([int(hex_, 16)])
        elif char:
            word += {b"n": b"\n", b"r": b"\r"}.get(char, char)
        else:
            word += plain or space
    return words + ([word] if word is not None else [])


def show_byte(byte, first):
    if byte == 0x5C:
        return "\\\\"
    if byte < 0x20 or byte > 0x7E or (first and byte in b">@/"):
        return f"\\x{byte:02x}"
    return chr(byte)


def show_reply(reply):
    lines = reply[:-2].split(b"\r\n")
    return "\n".join("".join(show_byte(b, i == 0) for i, b in enumerate(line)) for line in lines)


def direct(server, directive):
    word, value = directive.split()
    if word == "sleep":
        time.sleep(int(value) / 1000)
    elif word == "hash":
        server.call([b"HSET", value.encode(), b"f", b"v"])
    else:
        server.call([{"resp": b"HELLO", "db": b"SELECT"}[word], value.encode()])


def main():
    port, path = int(sys.argv[1]), sys.argv[2]
    server = Server(port)
    server.call([b"FLUSHALL"])
    out = []
    skip_reply = False
    for line in open(path).read().splitlines():
        if line.startswith("> "):
            out += [line, show_reply(server.call(split_words(line[2:])))]
            skip_reply = True
        elif line.startswith("@") or line.startswith("//"):
            out.append(line)
            skip_reply = False
            if line.startswith("@"):
                direct(server, line[1:])
        elif not skip_reply:
            out.append(line)
    open(path, "w").write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
