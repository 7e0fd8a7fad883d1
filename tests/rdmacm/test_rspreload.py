#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ordinary TCP under the distribution's librspreload.so and our librdmacm.so.1: it falls back to
TCP, and select(), poll() and epoll work.

usage: test_rspreload.py LIB_FOLDER
"""
import glob
import os
import subprocess
import sys

ECHO = """
import select, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
client.sendall(b"question")
assert select.select([other], [], [], 60)[0] == [other]
assert other.recv(100) == b"question"
poll = select.poll()
poll.register(client, select.POLLIN)
assert poll.poll(0) == []
other.sendall(b"answer")
assert poll.poll(60000) == [(client.fileno(), select.POLLIN)]
assert client.recv(100) == b"answer"
client.sendall(b"more")
wait = select.epoll()
wait.register(other, select.EPOLLIN)
assert wait.poll(60) == [(other.fileno(), select.EPOLLIN)]
client.close()
assert other.recv(100) == b"more" and other.recv(100) == b""
assert "librspreload" in open("/proc/self/maps").read()
print(*{line.split()[-1] for line in open("/proc/self/maps") if "librdmacm.so" in line})
"""


def main():
    lib = os.path.abspath(sys.argv[1])
    found = (glob.glob("/usr/lib/*/rsocket/librspreload.so")
             + glob.glob("/usr/lib*/rsocket/librspreload.so"))
    if not found:
        print("SKIPPED: no librspreload.so here (package librdmacm1)")
        sys.exit(77)
    run = subprocess.run([sys.executable, "-c", ECHO],
                         env=dict(os.environ, LD_PRELOAD=found[0], LD_LIBRARY_PATH=lib),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                         check=False)
    print(run.stdout)
    ours = os.path.realpath(os.path.join(lib, "librdmacm.so.1"))
    good = run.returncode == 0 and run.stdout.split() == [ours]
    print("TCP works under librspreload" if good
          else f"FAILED: exit status {run.returncode}, or another librdmacm.so.1 than {ours}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
