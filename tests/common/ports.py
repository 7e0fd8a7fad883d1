# SPDX-License-Identifier: BSD-2-Clause
"""TCP ports, by which many programs meet before they use RDMA."""
import socket


def free_tcp_port():
    """One that nobody has just now, for IPv4 and IPv6."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        probe.bind(("::", 0))
        return probe.getsockname()[1]


def listens(port, pid="self"):
    """Does somebody listen there, in the network that the process is in? Without a connection: some servers serve the first that comes."""
    wanted = f":{port:04X} "
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                if any(wanted in line and " 0A " in line for line in lines):
                    return True
        except OSError:
            pass  # no IPv6 here, or the process has ended
    return False
