#!/usr/bin/env python3
"""Two hosts send each other small and large messages, as ranks do: both at the same time, and who waits spins. Without an argument it
listens, and prints a line when it does. With the other host's address it prints, for each size, the bytes and the mean seconds.

The mean, because the host that is later by a message's way waits for every second message only.
"""

import argparse
import contextlib
import socket
import time

PORT, TURNS, SIZES = 9999, 40, (64, 1 << 20)
READ = 1 << 18  # bytes at a time, at most


def exchange(link, data):
    sent = received = 0
    while sent < len(data) or received < len(data):
        with contextlib.suppress(BlockingIOError):
            sent += link.send(data[sent:]) if sent < len(data) else 0
        with contextlib.suppress(BlockingIOError):
            received += len(link.recv(min(len(data) - received, READ))) if received < len(data) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host", nargs="?", help="the one that listens")
    host = parser.parse_args().host
    if host:
        link = socket.create_connection((host, PORT))
    else:
        listener = socket.create_server(("", PORT))
        print("ready", flush=True)
        link = listener.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    for size in SIZES:
        data, begun = memoryview(bytes(size)), time.monotonic()
        for _ in range(TURNS):
            exchange(link, data)
        if host:
            print(size, (time.monotonic() - begun) / TURNS)


if __name__ == "__main__":
    main()
