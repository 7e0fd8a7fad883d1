#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests Roost in an arm64 machine that qemu-system-aarch64 emulates, and between this machine and
the emulated one.

usage: guest.py [--host DIR] [--build DIR] [--sysroot DIR] [--only TEXT] [--brief] [--whole]
                [--pages 16k]

The guest runs Debian's arm64 kernel and has read-only access to the folders of the build and of the
source. A tap device connects it to this machine. Rows: the unit tests that run.py leaves out, so
that each unit test runs in one of the two (--whole: all unit tests), two at a time; seeds of the
simulator, whose packets must be the same on both machines; a quota of CPU time by control groups of
version 2; perftest and calls of kernels between Roost on both machines, in both directions.
--pages 16k boots a kernel with pages of 16 KiB, which Debian has since release 13.

The exit status is 0 if all rows passed, and 77 if this machine can run no guest (no root, no tap
device, no packages); with ROOST_INTEROP=required in the environment it is then 1.
"""
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import run
import sysroot
from sysroot import TRIPLET, Missing, output, skip

sys.path.insert(0, os.path.join(sysroot.HERE, "..", "common"))
sys.path.insert(0, os.path.join(sysroot.HERE, "..", "interop"))
import initramfs  # noqa: E402
import repeat  # noqa: E402
from machine import Machine, Pair  # noqa: E402
from ports import free_tcp_port, listens  # noqa: E402

# Size of a page: (Debian package, release that has it; None: the release of this machine)
KERNELS = {"4k": ("linux-image-arm64", None), "16k": ("linux-image-arm64-16k", "trixie")}
PACKAGES = ["busybox-static", "perftest", "ibverbs-utils", "libisal2", "libxxhash0", "libjansson4",
            "libevent-core-2.1-7", "libcmocka0", "libgcc-s1"]
MODULES = ["virtio_pci", "virtio_net", "virtio_console", "ipv6", "tun", "9pnet_virtio", "9p",
           "unix_diag", "udp_diag"]
MTU = 1500
PROCESSORS = 2
BOOT_LIMIT = 600  # seconds; 15 on an idle machine
LIMIT = 900       # for a unit test
PAIR_LIMIT = 900  # for two programs that communicate
SCALE = "20"      # of Roost's own time-outs

# An emulated thread is slower than the time of a busy poll, also in a guest (qemu 7.2).
UNABLE = ["drive-busy_poll"]
SEEDS = [1, 2, 7, 12]
SIMULATOR = "nic-simulator"  # the test whose program runs them
# (program, its arguments)
PERFTEST = [("ib_write_bw", "-n 20 -s 65536"), ("ib_read_lat", "-n 20"),
            ("ib_send_bw", "-n 20 -s 4096"), ("ib_atomic_lat", "-n 10")]
RESULT = re.compile(r"^\s*\d+\s+\d+\s+[0-9.]+\s+[0-9.]+", re.M)
KEY, VALUE = "17", "value of 17"


# ---- the guest's files ----

def needed(path):
    return re.findall(r"\(NEEDED\).*\[(\S+)\]", output("readelf", "-d", path))


def libraries(roots, programs):
    """Returns {path in the guest: file on this machine} of the libraries of the programs, from the
    folders of packages."""
    folders = [os.path.join(root, where, TRIPLET) for root in roots for where in ("lib", "usr/lib")]
    # the C library opens this one when a thread ends by pthread_exit()
    found, wanted = {}, ["libgcc_s.so.1"]
    for program in programs:
        wanted += needed(program)
    while wanted:
        name = wanted.pop()
        path = next(
            (os.path.join(f, name) for f in folders if os.path.exists(os.path.join(f, name))), None)
        inside = f"lib/{name}" if name.startswith("ld-linux") else f"lib/{TRIPLET}/{name}"
        if path and inside not in found:
            found[inside] = path
            wanted += needed(path)
    return found


def image(folder, root, programs, pages, more=()):
    """Returns the files (kernel, initial file system). `programs`: those of the build, whose
    libraries are needed, from `root`; `more`: further modules of the kernel."""
    package, suite = KERNELS[pages]
    os.makedirs(folder, exist_ok=True)
    packages = sysroot.unpack(os.path.join(folder, "packages"), PACKAGES)
    apt = sysroot.apt(os.path.join(folder, "apt"), suite)
    release, tree = initramfs.kernel(folder, package,
                                     lambda: apt.run("apt-get", "-q", "--error-on=any", "update"),
                                     apt.env)
    contents = {"bin/busybox": os.path.join(packages, "bin/busybox")}
    for name in [name for name, _ in PERFTEST] + ["ibv_devinfo"]:
        contents[f"bin/{name}"] = os.path.join(packages, "usr/bin", name)
    stock = [path for inside, path in contents.items() if inside != "bin/busybox"]
    contents.update(libraries([packages] + ([root] if root else []), stock + programs))
    contents.update(initramfs.modules(tree, release, [*MODULES, *more]))
    return (os.path.join(tree, "boot", "vmlinuz-" + release),
            initramfs.pack(folder, release, contents, "busybox"))


class Guest(Machine):
    def __init__(self, folder, made, tap, shared, more=(), modules=()):
        """`more`: options of qemu; `modules`: those of the kernel besides MODULES."""
        options = ["-accel", "tcg,thread=multi", "-M", "virt", "-cpu", "max,pauth-impdef=on",
                   "-smp", str(PROCESSORS), "-m", "3G"]
        for i, path in enumerate(shared):
            options += [
                "-virtfs",
                f"local,path={path},mount_tag=shared{i},security_model=none,readonly=on,"
                "multidevs=remap"]
        options += more
        pairs = ",".join(f"shared{i}:{path}" for i, path in enumerate(shared))
        words = (f"console=ttyAMA0 roost.modules={','.join([*MODULES, *modules])} "
                 f"roost.shared={pairs} roost.control=vport*")
        super().__init__(initramfs.tool("qemu-system-aarch64"), folder, made, tap, MTU, options,
                         words, ["-device", "virtio-serial-pci", "-device",
                                 "virtserialport,chardev=control,name=control"])

    def run(self, line, limit=LIMIT):
        """Has the limit of a unit test: emulation is slow beside other work."""
        return super().run(line, limit)


class Rig(Pair):
    def __init__(self, options, root, tests):
        self.guest_roost, self.host_roost = (os.path.join(options.build, "roost"),
                                             os.path.join(options.host, "roost"))
        self.simulators = [os.path.join(build, "tests/nic/test-nic-simulator")
                           for build in (options.host, options.build)]
        if not os.path.exists(self.host_roost):
            raise Missing(f"no {self.host_roost}: scripts/build {options.host}")
        folder = os.path.join(options.sysroot,
                              "guest" if options.pages == "4k" else f"guest-{options.pages}")
        super().__init__(MTU)
        with self.starting():
            ours = [self.guest_roost] + [test.command[0] for test in tests]
            made = image(folder, root, ours, options.pages)
            shared = [run.TOP] + ([] if options.build.startswith(run.TOP + os.sep)
                                  else [options.build])
            self.guest = Guest(folder, made, self.tap, shared)
            self.guest.wait_answer(BOOT_LIMIT)
            self.release = self.guest.run("uname -rm")[1].strip()
            self.page = json.loads(
                self.guest.run(f"{self.guest_roost} doctor --json")[1])["machine"]["page_size"]
            status, text = (
                self.guest.run(f"test -x {self.guest_roost} && ping -c 1 -W 60 {self.tap.ours[4]}"))
            if status:
                raise RuntimeError(f"the guest has no {self.guest_roost}, or no network: {text}; "
                                   f"see {self.guest.console}")

    # ---- rows: each returns a problem or None; perftest() also the output of both ends, and the
    # reason to run it again ----

    def units(self, tests):
        """Runs unit tests, as many at a time as the guest has processors. Yields (test, problem,
        seconds)."""
        waiting, running = list(tests), {}
        while waiting or running:
            for slot in range(PROCESSORS):
                if waiting and slot not in running:
                    running[slot] = waiting.pop(0), time.monotonic()
                    self.start_unit(running[slot][0], slot)
            time.sleep(0.2)
            for slot, (test, start) in list(running.items()):
                status, seconds = self.guest.status(slot), time.monotonic() - start
                if status is None and seconds > 2 * LIMIT:
                    raise TimeoutError(f"{test.name} does not end, although it was killed")
                if status is not None:
                    del running[slot]
                    yield test, ("" if status in (0, 77) else f"exit status {status}\n"
                                 f"{self.guest.text(slot, 4000)}"), seconds

    def start_unit(self, test, slot):
        words = [f"{key}={value}" for key, value in test.env.items()] + run.shorter(test)
        line = " ".join(shlex.quote(word) for word in words)
        folder = f"/tmp/test{slot}"
        self.guest.start(f"rm -rf {folder} && mkdir {folder} && cd {folder} && export TMPDIR="
                         f"{folder} && timeout -s KILL {LIMIT} env {line}", slot)

    def seed(self, seed):
        """Addresses of memory differ from run to run; all else of a run, its times too, comes from
        the seed."""
        told = f"--trace --seed {seed}"
        host_run = subprocess.run([self.simulators[0], *told.split()], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        mask = "s/va 0x[0-9a-f]*/va/"
        status, guest_text = self.guest.run(
            f"{self.simulators[1]} {told} >/tmp/said 2>&1; s=$?; sed '{mask}' /tmp/said | "
            f"sha256sum; tail -n 1 /tmp/said; exit $s", LIMIT)
        wanted = subprocess.run(f"sed '{mask}' | sha256sum", shell=True, input=host_run.stdout,
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        if host_run.returncode or status:
            return (f"exit status {host_run.returncode} on the host, {status} in the guest\n"
                    f"{host_run.stdout[-1000:]}\n{guest_text}")
        same = guest_text.startswith(wanted.split()[0])
        return ("" if same
                else f"the packets differ:\nhost  {wanted}{host_run.stdout.splitlines()[-1]}\n"
                f"guest {guest_text}")

    def quota(self):
        """`roost doctor` in a control group of version 2 that has half a CPU. Of this machine's
        groups the cpu controller may be of version 1."""
        top = "/tmp/cgroup"
        status, text = self.guest.run(f"mkdir {top} && mount -t cgroup2 cgroup2 {top} && echo +cpu "
                                      f">{top}/cgroup.subtree_control && mkdir {top}/half && "
                                      f"echo '50000 100000' >{top}/half/cpu.max")
        if status:
            return f"no such group: {text}"
        text = self.guest.run(
            f"echo 0 >{top}/half/cgroup.procs && {self.guest_roost} doctor --json")[1]
        found = {row["condition"]: row for row in json.loads(text)["rows"]}["cores"]
        good = found["state"] == "warning" and "quota of 0.50 CPUs" in found["found"]
        return "" if good else str(found)

    @contextlib.contextmanager
    def pair(self, host_command, guest_command, guest_serves, ready):
        """A server, and a client when `ready` says that it listens: the command of each side. Gives
        the process of this side."""
        host = None

        def start_host():
            return subprocess.Popen(host_command.split(), stdin=subprocess.DEVNULL,
                                    env=dict(os.environ, ROOST_TIMEOUT_SCALE=SCALE),
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    start_new_session=True)

        def start_guest():
            self.guest.start(f"export ROOST_TIMEOUT_SCALE={SCALE}; {guest_command}")
        try:
            if guest_serves:
                start_guest()
            else:
                host = start_host()
            until = time.monotonic() + PAIR_LIMIT
            while not ready(host) and time.monotonic() < until:
                time.sleep(0.2)
            if guest_serves:
                host = start_host()
            else:
                start_guest()
            yield host
        finally:
            if host and host.poll() is None:
                os.killpg(host.pid, signal.SIGKILL)
                host.wait()
            self.guest.kill("roost")
            self.guest.kill(guest_command.split(" -- ")[-1].split()[0])

    def wait_guest(self):
        until = time.monotonic() + PAIR_LIMIT
        while self.guest.status() is None and time.monotonic() < until:
            time.sleep(0.2)
        return self.guest.status()

    def perftest(self, program, words, guest_serves):
        port = free_tcp_port()
        command = f"{program} -d roost0 -x 0 -F -p {port} {words}"
        host_command = f"{self.host_roost} run --port udp:{self.tap.ours[4]} -- {command}" + (
            f" {self.tap.theirs[4]}" if guest_serves else "")
        guest_command = f"{self.guest_roost} run --port udp:{self.tap.theirs[4]} -- {command}" + (
            "" if guest_serves else f" {self.tap.ours[4]}")

        def ready(_):
            if guest_serves:
                return self.guest.listens(port) or self.guest.status() is not None
            return listens(port)
        with self.pair(host_command, guest_command, guest_serves, ready) as host:
            try:
                said = host.communicate(timeout=PAIR_LIMIT)[0]
            except subprocess.TimeoutExpired:
                said = "(does not end)"
            status, text = self.wait_guest(), self.guest.text()
            ended = host.returncode == 0 and status == 0
            good = ended and RESULT.search(text if not guest_serves else said)
            trouble = (
                "" if good
                else f"exit status {host.returncode} on the host, {status} in the guest\n"
                f"--- {host_command}\n{said}\n--- {guest_command}\n{text}")
            return (trouble, text, "the clock of a program" if not good and ended
                    and repeat.CLOCK.search(said + text) else None)

    def call(self, guest_serves):
        ends = {True: (self.guest_roost, self.tap.theirs[4]),
                False: (self.host_roost, self.tap.ours[4])}
        roost, address = ends[guest_serves]
        node = f"{roost} node --port udp:{address} --memory 1M --fill 100"
        roost, client = ends[not guest_serves]
        call = f"{roost} call --port udp:{client} --timeout 60s {address} get {KEY}"

        def ready(host):
            if guest_serves:
                return address in self.guest.text()
            return host.stdout.readline()
        with self.pair(*((call, node) if guest_serves else (node, call)), guest_serves,
                       ready) as host:
            if guest_serves:
                said = host.communicate(timeout=PAIR_LIMIT)[0]
                status, text = host.returncode, said + self.guest.text()
            else:
                status = self.wait_guest()
                said = text = self.guest.text()
            return ("" if status == 0
                    and VALUE in said else f"exit status {status}\n--- {node}\n--- {call}\n{text}")


def unit_row(name):
    return f"unit {name}"


def is_wanted(options, test):
    """Returns true if the options select the row of a unit test."""
    return (test not in UNABLE and (options.whole or run.why_not(test))
            and re.search(options.only, unit_row(test)))


def rows(rig):
    """Returns [(name, function)], without the unit tests."""
    found = []
    for program, words in PERFTEST:
        for guest_serves in (False, True):
            found.append((f"{program} {'host -> guest' if guest_serves else 'guest -> host'}",
                          lambda p=program, w=words,
                          g=guest_serves: repeat.run_again(lambda: rig.perftest(p, w, g))[0]))
    for guest_serves in (False, True):
        found.append((f"call {'host -> guest' if guest_serves else 'guest -> host'}",
                      lambda g=guest_serves: rig.call(g)))
    found.append(("quota of a control group, version 2", rig.quota))
    found += [(f"seed {seed}", lambda s=seed: rig.seed(s)) for seed in SEEDS]
    return found


def all_rows(rig, tests, only):
    """Runs the rows that `only` selects. Yields (name, problem, seconds)."""
    for name, function in rows(rig):
        if re.search(only, name):
            start = time.monotonic()
            yield name, function(), time.monotonic() - start
    for test, trouble, seconds in rig.units(tests):
        yield unit_row(test.name), trouble, seconds


def parse():
    def more(parser):
        parser.add_argument("--host", default=os.path.join(run.TOP, "build"), metavar="DIR",
                            help="where it is built for this machine; default: build")
        parser.add_argument("--pages", choices=sorted(KERNELS), default="4k",
                            help="size of the guest's memory pages; default: 4k")
        parser.add_argument(
            "--whole", action="store_true",
            help="all unit tests, not only those that run.py leaves out")
    options = run.parse(__doc__.splitlines()[0], more)
    options.host = os.path.abspath(options.host)
    return options


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    try:
        root = run.make(options, lambda name: name == SIMULATOR or is_wanted(options, name))
        tests = [test for test in run.unit_tests(options.build) if is_wanted(options, test.name)]
        start = time.monotonic()
        rig = Rig(options, root, tests)
    except Missing as e:
        skip(f"nothing was tried on arm64: {e}")
    print(f"the guest runs {rig.release} with pages of {rig.page} bytes, up after "
          f"{time.monotonic() - start:.0f} s", flush=True)
    print(f"left out: {' '.join(UNABLE)}: emulation is slower than the time of a busy poll",
          flush=True)
    failed, passed = [], 0
    try:
        for name, trouble, seconds in all_rows(rig, tests, options.only):
            print(f"{'FAILED' if trouble else 'ok    '} {name:40} {seconds:6.1f} s", flush=True)
            if trouble:
                failed.append(name)
                print(trouble, flush=True)
            passed += not trouble
    finally:
        rig.close()
    for name in failed:
        print(f"FAILED: {name}")
    print(f"{passed} passed, {len(failed)} failed in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
