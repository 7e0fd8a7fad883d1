#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the stock set beside perftest, unmodified, on our drop-in libraries: UCX, Open MPI, MPICH,
librpma, fio, qperf, ibstat.

usage: more.py --roost PROGRAM --port host|udp|shm --folder DIR [--long] [--narrow] [--only TEXT]
[--list]

Small programs of ours (mpi_check.c, mpi_ranks.c, rpma_check.c) check MPI and librpma; the
distribution's compiler wrappers build them in DIR. --long has more sizes, more rounds and every
row; without it the set takes about a minute. --narrow runs only MPI's datagrams, in a network of
its own with an interface of 1400 bytes. The exit status is 77 if a program is not installed: the
last line names it; with ROOST_INTEROP=required in the environment it is then 1.
"""
import os
import shutil
import sys
import time

from programs import (WEAK_FENCES, RunSide, addresses, build_program, choose, free_tcp_port, lacks,
                      listens, narrow_network, outcome, parser, run_pair, run_rows, skip)
from versions import UCX_FINAL, ucx_perftest

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 60  # seconds for a row
UCX = "env UCX_NET_DEVICES=roost0:1 UCX_WARN_UNUSED_ENV_VARS=n UCX_TLS="
# --oversubscribe and --bind-to none: there may be fewer cores than processes.
OPEN_MPI = (f"env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {WEAK_FENCES} "
            "mpirun.openmpi -n 2 --oversubscribe --bind-to none --mca pml ucx --mca osc ucx "
            "-x UCX_TLS={tls},self -x UCX_NET_DEVICES=roost0:1 {folder}/mpi_check.openmpi")
# Without NOLOCAL, MPICH uses its own shared memory between ranks of one machine.
MPICH = UCX + ("{tls},self MPIR_CVAR_NOLOCAL=1 mpirun.mpich -n 2 "
               "{folder}/mpi_check.mpich")


class Row:
    """Two programs, or one: {S} is the server's address, {P} a TCP port. `serves`: the server does
    not end by itself."""

    def __init__(self, name, server, client=None, wanted="", serves=False, long=False,
                 kinds=("host", "udp", "shm")):
        self.name, self.server, self.client, self.wanted = name, server, client, wanted
        self.serves, self.long, self.kinds = serves, long, kinds


def ucx_rows():
    for tls in ("rc", "ud_verbs"):
        for test, size, count, long in (("tag_lat", 8, 2000, False), ("tag_bw", 1 << 20, 200, True),
                                        ("ucp_am_lat", 4096, 1000, True),
                                        ("stream_lat", 64, 1000, True)):
            words = f"{UCX}{tls} {ucx_perftest()} -p {{P}}"
            yield Row(f"UCX {tls} {test} -s {size}", words,
                      f"{words} 127.0.0.1 -t {test} -s {size} -n {count} -w 10", UCX_FINAL,
                      long=long)
    # The programs sleep in epoll_wait(2) on the completion channel's descriptor between two
    # messages.
    for test, size, long in (("tag_lat", 8, False), ("tag_lat", 65536, True),
                             ("tag_bw", 4096, True)):
        words = f"{UCX}rc {ucx_perftest()} -p {{P}} -E sleep"
        yield Row(f"UCX rc {test} -s {size} -E sleep", words,
                  f"{words} 127.0.0.1 -t {test} -s {size} -n 2000 -w 100", UCX_FINAL,
                  long=long)
    # Operations of the device, not emulated by active messages: UCT alone.
    for test in ("fadd", "cswap"):
        words = f"{UCX}rc {ucx_perftest()} -p {{P}} -d roost0:1 -x rc_verbs"
        yield Row(f"UCX rc_verbs {test}", words, f"{words} 127.0.0.1 -t {test} -s 8 -n 2000 -w 10",
                  UCX_FINAL)
    # Connected by rdma_cm. It checks its data (-q), with READs and WRITEs as well as tags.
    words = f"{UCX}rc io_demo -p {{P}} -q -d 64:100000"
    for more in ("", " -A"):
        yield Row(f"UCX io_demo{more} by rdma_cm", f"{words}{more}",
                  f"{words}{more} -i 300 -o read,write -t 20 {{S}}",
                  r"(?i)total.*read.*write|read \d", serves=True, long=bool(more))


def mpi_rows():
    for tls in ("rc", "ud_verbs"):
        for name, words in (("Open MPI", OPEN_MPI), ("MPICH", MPICH)):
            for more in ("", " threads"):
                if not (more and tls == "ud_verbs"):
                    yield Row(f"{name} {tls} mpi_check{more}", words.replace("{tls}", tls) + more,
                              wanted=r"(?m)^all right$", long=tls == "ud_verbs" or bool(more))


def ranks_rows():
    """Eight ranks; also as `roost run -- mpirun` without further options, where each MPI chooses
    its transport."""
    words = OPEN_MPI.replace("-n 2", "-n 8").replace("mpi_check", "mpi_ranks")
    found = [(f"Open MPI {tls}", words.replace("{tls}", tls), tls != "rc")
             for tls in ("rc", "ud_verbs")]
    found += [(f"MPICH {tls}", MPICH.replace("-n 2", "-n 8").replace(
        "mpi_check", "mpi_ranks").replace("{tls}", tls), tls != "rc") for tls in ("rc", "ud_verbs")]
    found += [("Open MPI by itself", OPEN_MPI[:OPEN_MPI.index("--mca")].replace("-n 2", "-n 8")
               + "{folder}/mpi_ranks.openmpi", True),
              ("MPICH by itself", "mpirun.mpich -n 8 {folder}/mpi_ranks.mpich", True)]
    for name, command, long in found:
        for kind in ("host", "udp"):
            yield Row(f"{name}, 8 ranks", command, wanted=r"(?m)^all right$", kinds=(kind,),
                      long=long and not (kind == "host" and "itself" in name))


def rdmacm_rows():
    words = "{folder}/rpma_check {S} {P}"
    yield Row("librpma write, flush, read, atomic write", words, f"{words} client",
              r"(?m)^all right$")
    for depth, long in ((1, False), (16, False), (64, True)):
        # Not --verb=send: fio's engines/rdma.c requests no RNR retries (rnr_retry_count 0), and its
        # manual requires a larger iodepth of the receiver. With equal depths it has a race on any
        # NIC.
        for verb in ("write", "read"):
            fio = f"fio --ioengine=rdma --port={{P}} --bs=4k --size=4m --iodepth={depth}"
            yield Row(f"fio {verb} iodepth {depth}", f"{fio} --name=s --rw=read",
                      f"{fio} --name=c --hostname={{S}} --rw=write --verb={verb}", r"io=4096KiB",
                      long=long or verb == "read")
    # By rdma_cm: without it qperf sends no global route, and does not work on a RoCE device.
    for test, long in (("rc_compare_swap_mr", False), ("rc_fetch_add_mr", True),
                       ("ver_rc_compare_swap", True), ("ver_rc_fetch_add", False),
                       ("rc_rdma_write_poll_lat", True)):
        yield Row(f"qperf {test}", "qperf -lp {P}", f"qperf -lp {{P}} {{S}} -t 1 -cm 1 {test}",
                  r"(bw|latency|msg_rate)\s+=", serves=True, long=long)


def alone_rows():
    yield Row("ibstat", "ibstat", wanted=r"(?s)CA 'roost0'.*State: Active.*Link layer: Ethernet")
    yield Row("ibstatus", "ibstatus",
              wanted=r"(?s)default gid:\s+0000:0000:0000:0000:0000:ffff:.*state:\s+4: ACTIVE")


def rows(kind, long):
    found = [*alone_rows(), *ucx_rows(), *mpi_rows(), *ranks_rows(), *rdmacm_rows()]
    return [row for row in found if kind in row.kinds and (long or not row.long)]


PROGRAMS = {"ucx_perftest": "ucx-utils", "io_demo": "ucx-utils", "mpirun.openmpi": "openmpi-bin",
            "mpicc.openmpi": "libopenmpi-dev", "mpirun.mpich": "mpich",
            "mpicc.mpich": "libmpich-dev", "fio": "fio", "qperf": "qperf",
            "ibstat": "infiniband-diags", "/usr/include/librpma.h": "librpma-dev"}


def build(folder):
    """Builds our programs. Prints the reason if they cannot be built."""
    os.makedirs(folder, exist_ok=True)
    for program in ("mpi_check", "mpi_ranks"):
        for mpi in ("openmpi", "mpich"):
            problem = build_program(f"mpicc.{mpi}", os.path.join(HERE, f"{program}.c"),
                                    os.path.join(folder, f"{program}.{mpi}"), "-pthread")
            if problem:
                return problem
    return build_program("cc", os.path.join(HERE, "rpma_check.c"),
                         os.path.join(folder, "rpma_check"), "-lrpma", "-libverbs")


def run_alone(roost, kind, row, fill):
    # Processes that mpirun starts choose addresses themselves.
    side = RunSide(roost, kind if "mpirun" in row.server else addresses(kind)[0],
                   row.server.format(**fill))
    problem = side.wait(time.monotonic() + LIMIT) or side.exit_verdict()
    side.kill()
    return problem or lacks(side, row.wanted), side.report()


def run_both(roost, kind, row, fill):
    # Over shm too: some programs also connect to the same address by TCP.
    ours, theirs = (f"{kind}:{address.split(':')[1]}" for address in addresses("udp"))
    fill = dict(fill, S=ours.split(":", 1)[1], P=free_tcp_port())
    # Programs that connect by rdma_cm have no TCP port to wait for.
    by_cm = "{S}" in row.client and "qperf" not in row.client
    grace = time.monotonic() + 1

    def judge(server, client, until):
        problem = client.wait(until) or client.exit_verdict() if row.serves else outcome(
            server, client, until)
        return problem or lacks(client, row.wanted)

    return run_pair(lambda: RunSide(roost, ours, row.server.format(**fill)),
                    lambda: RunSide(roost, theirs, row.client.format(**fill)),
                    lambda _: time.monotonic() > grace if by_cm else listens(fill["P"]), judge,
                    LIMIT)


def main():
    options = parser(__doc__, roost="the roost command", folder="where programs of ours are built")
    options.add_argument("--long", action="store_true", help="every row")
    options.add_argument("--narrow", action="store_true",
                         help="in a network of its own, with an interface of 1400 bytes")
    options = options.parse_args()
    kind, roost = options.port, os.path.abspath(options.roost)
    chosen = choose(options,
                    [row for row in rows(kind, options.long or options.narrow) if not options.narrow
                     or "mpirun" in row.server and "ud_verbs" in row.server], lambda row: row.name)
    missing = sorted({package for file, package in PROGRAMS.items()
                      if not (shutil.which(file) or os.path.exists(file))})
    if missing:
        skip(f"the stock set over {kind} was not run: not installed: {', '.join(missing)} "
             f"(scripts/setup check installs them)")
    if options.narrow:
        narrow_network()
    problem = build(options.folder)
    if problem:
        print(f"FAILED {kind} building the programs of the set: {problem}")
        sys.exit(1)
    fill = {"folder": os.path.abspath(options.folder)}
    run_rows([(f"{kind} {row.name}", lambda row=row: (run_both if row.client else run_alone)(
        roost, kind, row, fill)) for row in chosen])


if __name__ == "__main__":
    main()
