#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Starts commands in another network namespace for mpirun, instead of ssh, without capabilities.

usage: remote.py serve HOST        waits for commands in its namespace until it is killed
       remote.py HOST COMMAND ...  runs a command there by sh, with this program's standard files,
                                   and exits with the command's status, as ssh does

ROOST_TEST_REMOTE in the environment names the folder of the sockets. The command has the
environment of the serving process.
"""
import array
import os
import socket
import subprocess
import sys
import threading

MOST = 1 << 16  # bytes of a command


def path_of(host):
    return os.path.join(os.environ['ROOST_TEST_REMOTE'], host)


def run(connection):
    with connection:
        command, fds, _, _ = socket.recv_fds(connection, MOST, 3)
        with subprocess.Popen(['sh', '-c', command.decode()], stdin=fds[0], stdout=fds[1],
                              stderr=fds[2]) as process:
            for fd in fds:
                os.close(fd)
            status = process.wait()
        connection.sendall(bytes([status if status >= 0 else 128 - status]))


def serve(host):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path_of(host))
        listener.listen()
        print('serves', flush=True)
        while True:
            threading.Thread(target=run, args=[listener.accept()[0]], daemon=True).start()


def start(host, command):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path_of(host))
        socket.send_fds(connection, [command.encode()], array.array('i', [0, 1, 2]))
        status = connection.recv(1)
    sys.exit(status[0] if status else 255)


def main():
    if sys.argv[1] == 'serve':
        serve(sys.argv[2])
    start(sys.argv[1], ' '.join(sys.argv[2:]))


if __name__ == '__main__':
    main()
