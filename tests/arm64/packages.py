#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Installs the Debian packages for arm64 in an emulated arm64 machine, runs their tests, and
removes them.

usage: packages.py --folder DIR [--suite SUITE] DEB...

The guest is that of guest.py. Its disk has a fresh system of the suite (default: bookworm) with
what the packages and their tests need: apt fetches Debian's packages for arm64, they are unpacked
on this machine, and dpkg installs them when the guest starts for the first time. DIR keeps the disk
and the guest's files. What a test writes to the disk is lost when the guest ends.

In the guest: dpkg --install, `roost --version`, `roost doctor`, the tests of debian/tests
(ibv_devinfo, perftest, rping over a link with loss, `roost demo`, programs compiled against
libroost-dev), dpkg --purge, and a comparison of all files with those before.

The exit status is 0 if all passed, and 77 if this machine can run no guest (no root, no tap device,
no packages); with ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
import time

import guest
import run
import sysroot
from sysroot import ARCH, Missing, output, skip

sys.path.insert(0, os.path.join(sysroot.HERE, "..", "common"))
from machine import Pair  # noqa: E402

# What the tests of debian/tests need in addition (debian/tests/control).
FOR_TESTS = ["ibverbs-utils", "perftest", "rdmacm-utils", "gcc", "libc6-dev", "make", "pkg-config"]
DISK = "3G"         # a file with holes
# Linux asks for the driver of crc32c by a program that the initial file system does not have.
MODULES = ["virtio_blk", "crc32c_generic", "ext4"]
LIMIT = 3600        # seconds for any one command: emulation is slow beside other work
INSIDE = "/system"  # where the guest mounts the disk
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
       "DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NONINTERACTIVE_SEEN": "true",
       "ROOST_TIMEOUT_SCALE": guest.SCALE}
# All paths of the system, without what dpkg itself keeps.
FILES = ("find / -xdev -path /debs -prune -o -path /src -prune -o -path /tmp -prune -o "
         "-path /run -prune -o -path /var/log -prune -o -path /var/cache -prune -o "
         "-path /var/lib/dpkg -prune -o -print | sort")


class Failed(Exception):
    """A step failed; `text` is its output."""

    def __init__(self, what, text=""):
        super().__init__(what)
        self.text = "\n".join(text.splitlines()[-100:])


# ---- the disk ----

def names_of(debs):
    return [output("dpkg-deb", "-f", deb, "Package").strip() for deb in debs]


def needed(debs):
    """Returns the packages on which the packages depend, without these themselves."""
    depends = ",".join(output("dpkg-deb", "-f", deb, "Depends").strip() for deb in debs)
    return sorted({part.split()[0].partition(":")[0] for part in depends.split(",")
                   if part.strip()} - set(names_of(debs)))


def unpack(root, debs):
    """Unpacks packages in a new system. dpkg then installs them there, from /debs."""
    for name in ("bin", "sbin", "lib"):
        os.makedirs(os.path.join(root, "usr", name))
        os.symlink(f"usr/{name}", os.path.join(root, name))
    for name in ("dev", "proc", "sys", "src", "debs", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    for name in ("status", "available"):
        open(os.path.join(root, "var/lib/dpkg", name), "w", encoding="ascii").close()
    for deb in debs:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
            subprocess.run(["tar", "-x", "-p", "--numeric-owner", "--keep-directory-symlink",
                            "-C", root], stdin=tar.stdout, check=True)
        shutil.copy(deb, os.path.join(root, "debs"))


def make_disk(path, suite, packages):
    """Makes the disk with the packages unpacked, and not installed yet."""
    scratch = path + ".making"
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    apt = sysroot.apt(os.path.join(scratch, "apt"), suite)
    apt.run("apt-get", "-q", "--error-on=any", "update")
    apt.run("apt-get", "-q", "-y", "--download-only", "install", "?essential", *packages)
    root = os.path.join(scratch, "root")
    unpack(root, sorted(glob.glob(os.path.join(apt.archives, "*.deb"))))
    new = os.path.join(scratch, "disk")
    output(guest.initramfs.tool("mke2fs"), "-q", "-t", "ext4", "-d", root, new, DISK)
    os.rename(new, path)
    shutil.rmtree(scratch)


# ---- the guest ----

class System(Pair):
    """A guest with the disk mounted, for `with`. `keep`: what is written to the disk stays."""

    def __init__(self, folder, disk, shared, keep=False):
        super().__init__(guest.MTU)
        with self.starting():
            files = os.path.join(folder, "guest")
            made = guest.image(files, None, [], "4k", MODULES)
            self.guest = guest.Guest(
                files, made, self.tap, shared,
                ["-drive", f"file={disk},if=none,id=disk,format=raw,snapshot="
                 f"{'off' if keep else 'on'}", "-device", "virtio-blk-pci,drive=disk"], MODULES)
            self.guest.wait_answer(guest.BOOT_LIMIT)
            self.line(f"mkdir -p {INSIDE} && mount -t ext4 /dev/vda {INSIDE} && cd {INSIDE} && "
                      "mount -t proc proc proc && mount -t sysfs sys sys && "
                      "mount --bind /dev dev && mkdir -p dev/shm dev/pts && "
                      "mount --bind /dev/shm dev/shm && "
                      "mount -t devpts devpts dev/pts && mount -t tmpfs tmp tmp && "
                      "mount -t tmpfs run run && { [ -e dev/fd ] || ln -s /proc/self/fd dev/fd; }")
            for path, inside in shared_inside(shared):
                self.line(f"mount --bind {path} {INSIDE}/{inside}")

    def line(self, line):
        """Runs a shell line of the guest. Returns its output."""
        status, text = self.guest.run(line, LIMIT)
        if status:
            raise Failed(f"{line}: exit status {status}", text)
        return text

    def inside(self, line, folder="/"):
        """Runs a shell line in the system on the disk. Returns its output."""
        env = " ".join(f"{name}={value}" for name, value in ENV.items())
        self.guest.start(f"cd / && chroot {INSIDE} /usr/bin/env -i {env} /bin/sh -c "
                         + shlex.quote(f"cd {folder} && {line}") + " </dev/null")
        until = time.monotonic() + LIMIT
        while self.guest.status() is None:
            if time.monotonic() > until:
                raise Failed(f"{line}: does not end", self.guest.text(limit=8000))
            time.sleep(0.5)
        text = self.guest.text(limit=100000)
        if self.guest.status():
            raise Failed(f"{line}: exit status {self.guest.status()}", text)
        return text


def shared_inside(shared):
    return zip(shared, ("src", "debs"))


def step(what, work):
    start = time.monotonic()
    result = work()
    print(f"ok: {what} ({time.monotonic() - start:.0f} s)", flush=True)
    return result


def install_all(folder, path):
    """Lets dpkg install in the guest what is unpacked on the disk."""
    with System(folder, path, [], keep=True) as system:
        system.inside("dpkg --force-depends --force-unsafe-io --install /debs/*.deb && "
                      "dpkg --configure -a && rm /debs/*.deb")
        audit = system.inside("dpkg --audit")
        if audit.strip():
            raise Failed("the fresh system is not complete", audit)
        system.line(f"cd / && sync && umount -l {INSIDE} && sync")


def fresh(folder, suite, packages):
    """Returns the disk of a fresh system, which is made once for these packages."""
    path, stamp = (os.path.join(folder, f"{suite}.{ARCH}.disk"),
                   os.path.join(folder, f"{suite}.{ARCH}.disk.of"))
    wanted = " ".join(packages)
    if (os.path.exists(path) and os.path.exists(stamp)
            and open(stamp, encoding="ascii").read() == wanted):
        return path
    step(f"{suite}: a system for {ARCH} unpacked",
         lambda: make_disk(path + ".new", suite, packages))
    step(f"{suite}: installed in the guest", lambda: install_all(folder, path + ".new"))
    os.rename(path + ".new", path)
    with open(stamp, "w", encoding="ascii") as file:
        file.write(wanted)
    return path


def try_doctor(system):
    """`roost doctor` may find that a condition of the guest does not hold (exit status 1)."""
    found = json.loads(system.inside("roost doctor --json || [ $? = 1 ]"))
    if found["machine"]["arch"] != "aarch64" or not found["rows"]:
        raise Failed("roost doctor describes another machine", json.dumps(found))


def use(folder, source, suite, debs):
    """Installs the packages in a fresh system in the guest, runs their tests, removes them."""
    os.makedirs(folder, exist_ok=True)
    names, given = names_of(debs), os.path.join(folder, "debs")
    shutil.rmtree(given, ignore_errors=True)
    os.makedirs(given)
    for deb in debs:
        shutil.copy(deb, given)
    disk = fresh(folder, suite, sorted({*FOR_TESTS, *needed(debs)}))
    with System(folder, disk, [source, given]) as system:
        print(f"the guest runs {system.line('uname -rm').strip()}", flush=True)
        system.inside(f"{FILES} >/tmp/before")
        step(f"{suite}: dpkg --install", lambda: system.inside("dpkg --install /debs/*.deb"))
        version = system.inside("dpkg-query -W -f '${Version} ${Architecture}' roost").split()
        if version[1] != ARCH or system.inside("roost --version").strip() != f"roost {version[0]}":
            raise Failed(f"roost is {version}, and says {system.inside('roost --version')}")
        step(f"{suite}: roost doctor", lambda: try_doctor(system))
        for test in ("programs", "develop"):
            step(f"{suite}: debian/tests/{test}",
                 lambda name=test: system.inside(f"debian/tests/{name}", "/src"))
        system.inside(f"dpkg --purge {' '.join(names)}")
        left = system.inside(f"{FILES} >/tmp/after; diff /tmp/before /tmp/after || true")
        if left.strip():
            raise Failed("files differ after the packages were removed", left)
        print(f"ok: {suite}: removed, and nothing is left", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, metavar="DIR", help="keeps the guest's files")
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("debs", nargs="+", metavar="DEB")
    options = parser.parse_args()
    try:
        use(os.path.abspath(options.folder), run.TOP, options.suite,
            [os.path.abspath(deb) for deb in options.debs])
    except Missing as e:
        skip(f"the packages for {ARCH}: {e}")
    except Failed as e:
        print(f"{e.text}\nFAILED: {e}")
        sys.exit(1)


if __name__ == "__main__":
    main()
