#!/usr/bin/env python3
"""A cable with a delay and a rate, for the tests and measurements of ranks on several hosts: two new network cards (TAP devices)
whose frames it carries to each other. Needs no kernel module but tun, where `tc netem` needs its own. Prints a line when both are
there; they go when it ends.
"""

import argparse
import collections
import contextlib
import fcntl
import os
import select
import struct
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
QUEUED_SECONDS = 0.1  # what is queued for longer is dropped, as by a switch


def tap(name):
    card = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(card, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return card


class Direction:
    def __init__(self, source, target, delay, bytes_per_second):
        self.source, self.target, self.delay, self.rate = source, target, delay, bytes_per_second
        self.free_at = 0.0  # when the last frame has left
        self.frames = collections.deque()  # when they arrive, and what they are

    def take(self):
        """All frames that have been sent."""
        try:
            while frame := os.read(self.source, 1 << 16):
                now = time.monotonic()
                if self.free_at - now > QUEUED_SECONDS:
                    continue
                self.free_at = max(now, self.free_at) + len(frame) / self.rate
                self.frames.append((self.free_at + self.delay, frame))
        except BlockingIOError:
            pass
        except OSError:  # the card is down
            time.sleep(0.001)

    def deliver(self):
        while self.frames and self.frames[0][0] <= time.monotonic():
            try:
                os.write(self.target, self.frames.popleft()[1])
            except OSError:  # the card is down, or full
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cards", nargs=2, help="names of the two cards")
    parser.add_argument("--delay", type=float, default=0.001, help="seconds, one way")
    parser.add_argument("--gbits", type=float, default=1, help="Gbit/s, in each direction")
    arguments = parser.parse_args()
    ends = [tap(name) for name in arguments.cards]
    with contextlib.suppress(PermissionError):  # containers may forbid it: frames are then late
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # ranks that wait keep every core busy
    print("ready", flush=True)
    rate = arguments.gbits * 1e9 / 8
    directions = [Direction(ends[0], ends[1], arguments.delay, rate), Direction(ends[1], ends[0], arguments.delay, rate)]
    while True:
        waiting = [direction.frames[0][0] for direction in directions if direction.frames]
        select.select(ends, [], [], max(0.0, min(waiting) - time.monotonic()) if waiting else None)
        for direction in directions:
            direction.take()
            direction.deliver()


if __name__ == "__main__":
    main()
