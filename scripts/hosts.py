"""Hosts for ranks, of which one machine has as many as it likes: network namespaces with a card each at one switch. mpirun's ssh
is replaced by `ip netns exec`. Needs root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from slow_link import tap

MPIRUN = shutil.which("mpirun")


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def can_make_hosts():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    probe = f"q{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", probe], check=True)
    return made


def can_slow_links():
    try:
        os.close(tap(f"q{os.getpid()}probe"))
    except OSError:
        return False
    return True


class Hosts:
    """folder: for a file that mpirun executes."""

    def __init__(self, count, folder):
        self.switch = f"q{os.getpid()}s"
        self.names = [f"q{os.getpid()}h{i}" for i in range(count)]
        self.links = []
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
            self.plug_in(i)
        self.agent = folder / "agent"
        self.agent.write_text('#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        self.agent.chmod(0o755)

    def plug_in(self, i):
        """The card eth0 of a host, whose other end is a port of the switch. Large frames, because each costs slow_link.py some microseconds."""
        name = self.names[i]
        ip("-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "mtu", "9000", "up")
        ip("-n", name, "address", "add", f"10.99.0.{i + 1}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "mtu", "9000")
        for card in "lo", "eth0":
            ip("-n", name, "link", "set", card, "up")

    def mpirun(self, *arguments):
        """The command that starts a process on each host, from the first."""
        network = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
        # Otherwise mpirun itself waits for minutes for a host that is cut off (docs/scale.md).
        network += [part for what in ("time", "intvl", "probes") for part in ("--mca", f"oob_tcp_keepalive_{what}", "1")]
        command = [MPIRUN, "--allow-run-as-root", "--bind-to", "none", "--host", ",".join(self.names), "--mca", "plm_rsh_agent", self.agent, *network, *arguments]
        first = self.names[0]
        return ["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c", f'hostname {first}; exec "$@"', "sh", *map(str, command)]

    def measure_link(self, i, j):
        """Of two hosts: the seconds that a small message takes, and the bytes a second of large ones, both hosts sending at the same time."""
        program = [sys.executable, Path(__file__).with_name("exchange_messages.py")]
        with subprocess.Popen(["ip", "netns", "exec", self.names[i], *program], stdout=subprocess.PIPE, text=True) as listener:
            listener.stdout.readline()
            other = ["ip", "netns", "exec", self.names[j], *program, f"10.99.0.{i + 1}"]
            lines = subprocess.run(other, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout.splitlines()
        (small, latency), (large, took) = ([float(number) for number in line.split()] for line in lines)
        return latency, (large - small) / (took - latency)

    def cut(self, i):
        ip("-n", self.switch, "link", "set", f"port{i}", "down")

    def slow(self, i, delay=0.001, gbits=1.0):
        """From now on a host has such a cable, before mpirun() only. delay: seconds, one way."""
        cards = [f"q{os.getpid()}a{i}", f"q{os.getpid()}b{i}"]
        program = Path(__file__).with_name("slow_link.py")
        link = subprocess.Popen([sys.executable, program, *cards, "--delay", str(delay), "--gbits", str(gbits)], stdout=subprocess.PIPE, text=True)
        self.links.append(link)
        if not link.stdout.readline():
            raise RuntimeError("slow_link.py has ended")
        ip("-n", self.names[i], "link", "del", "eth0")
        ip("link", "set", cards[0], "netns", self.names[i], "name", "eth0")
        ip("link", "set", cards[1], "netns", self.switch, "name", f"port{i}")
        self.plug_in(i)

    def close(self):
        for name in self.names:
            for pid in ip("netns", "pids", name, check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for link in self.links:
            link.kill()
            link.wait()
            link.stdout.close()
        for name in [*self.names, self.switch]:
            ip("netns", "del", name, check=False)
