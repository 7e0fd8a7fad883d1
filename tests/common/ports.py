# SPDX-License-Identifier: BSD-2-Clause
"""TCP ports. Many programs connect by TCP before they use RDMA."""
import socket


def free_tcp_port():
    """Returns a port that is free now, for IPv4 and IPv6."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        probe.bind(("::", 0))
        return probe.getsockname()[1]


def listens(port, pid="self"):
    """Returns whether a process listens on the port, in the network of process `pid`.

    Makes no connection, because some servers serve the first one.
    """
    wanted = f":{port:04X} "
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                if any(wanted in line and " 0A " in line for line in lines):
                    return True
        except OSError:
            pass  # no IPv6 here, or the process has ended
    return False
