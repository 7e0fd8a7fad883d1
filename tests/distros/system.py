#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fresh Debian systems, and commands in them.

usage: system.py SUITE FOLDER [--keep ROOT] [--bind PATH:INSIDE]... [--dir INSIDE] [-- COMMAND...]

The system of a suite (bookworm, trixie, forky, ...) is made once, by mmdebstrap, in FOLDER/SUITE:
the essential packages, apt and make, from the archive that this machine's apt is configured for,
with its proxy. Without COMMAND the program then prints its path.

A COMMAND runs as root in a copy of it, with mounts, processes and a /dev of its own; the network is
the caller's. The copy is removed afterwards, with --keep it is ROOT, made where it is not there,
and stays as COMMAND leaves it. --bind shows a folder of this machine inside. What apt downloads
inside is kept in FOLDER/SUITE.debs for the next one. The exit status is that of COMMAND.

Needs root. Exit status 77, with the reason in the last line, when a system cannot be made here.
"""
import argparse
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from debian import Missing, archive, keyring, output
from own_network import own_network

# A file in the root of each system: tests that would make a system inside another look for it.
MARK = "etc/roost-test-system"
HERE_IS_ONE = os.path.exists("/" + MARK)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The variables of the caller's environment that a command inside keeps.
PASSED = re.compile(r"(?i)(https?|ftp|no)_proxy$|TERM$|ROOST_INTEROP$|CCACHE_DIR$")

# Names in the source's top folder that are not copied: build folders, and the history.
# .dockerignore has the same.
NOT_SOURCE = ("build", "build-*", ".git", "prefix", "obj-*")

# The words before a command that ends when this process is killed.
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]

# Runs as process 1 of the new namespaces, with the root, a file with the bind mounts, the folder to
# start in, and the command. pivot_root() and not chroot(): a program in a chroot may not make user
# namespaces.
INIT = r"""
set -e
root=$1 binds=$2 dir=$3
shift 3
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then mount --bind /sys/fs/cgroup sys/fs/cgroup; fi
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/net
for name in null zero full random urandom tty kvm net/tun; do
	if [ -e "/dev/$name" ]; then
		: >"dev/$name"
		mount --bind "/dev/$name" "dev/$name"
	fi
done
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
while IFS= read -r path && IFS= read -r inside; do
	mkdir -p "./$inside"
	mount --bind "$path" "./$inside"
done <"$binds"
pivot_root . .
umount -l .
cd "$dir"
set +e
env -i "$@"
"""


def copy_source(source, to):
    """Copies a checkout without the built files."""
    def ignore(folder, names):
        patterns = NOT_SOURCE if os.path.samefile(folder, source) else ()
        return {name for name in names if name == "__pycache__"
                or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}

    shutil.copytree(source, to, symlinks=True, ignore=ignore, dirs_exist_ok=True)


def apt_options():
    """Returns this machine's settings for apt that are needed to reach the archive."""
    wanted = re.compile(r'Acquire::(https?::(Proxy|Verify)|Check-|Retries|ForceIPv)')
    return [line for line in output("apt-config", "dump").splitlines() if wanted.match(line)
            and not line.endswith(' "";')]


def check_rights():
    if os.geteuid() != 0:
        raise Missing("systems in folders of their own need root")
    for program in ("mmdebstrap", "unshare", "pivot_root"):
        if not shutil.which(program):
            raise Missing(f"no program {program}: scripts/setup check installs it")


def base(folder, suite):
    """The folder of the suite's system, which is made where it is not there."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", suite):
        raise Missing(f"'{suite}' is no name of a suite; one is trixie")
    check_rights()
    root = os.path.join(folder, suite)
    if os.path.exists(root):
        return root
    os.makedirs(folder, exist_ok=True)
    scratch = root + ".making"
    shutil.rmtree(scratch, ignore_errors=True)
    options = [f"--aptopt={line}" for line in apt_options()]
    uri = archive()
    try:
        # mmdebstrap mounts /proc, /sys and others in the folder. In namespaces of its own its
        # processes and mounts end with it, also if it is killed: the folder then has only files.
        # This system is not needed after a crash: no fsync() after every file.
        output(*DIES_WITH_US, "unshare", "--mount-proc", "--propagation", "private", "--fork",
               "--pid", "--kill-child", "mmdebstrap", "--mode=root", "--variant=minbase",
               "--include=make", "--dpkgopt=force-unsafe-io", f"--keyring={keyring()}", *options,
               suite, scratch, uri)
    except Missing as e:
        shutil.rmtree(scratch, ignore_errors=True)
        problem = re.search(r"E: (.*?)(?= E: |$)", str(e))
        raise Missing(f"{uri} has no suite {suite}" if "does not have a Release file" in str(e) else
                      f"mmdebstrap: {problem[1] if problem else e}") from None
    with open(os.path.join(scratch, MARK), "w", encoding="ascii") as file:
        file.write(f"{suite}: made by tests/distros/system.py\n")
    os.rename(scratch, root)
    return root


def run(folder, suite, command, keep=None, binds=(), start="/", alone=False, **more):
    """Runs a command in a copy of the suite's system: subprocess.run()'s answer. binds: [(folder
    here, folder inside)]; alone: it has a network of its own."""
    made = base(folder, suite)
    root = os.path.abspath(keep) if keep else tempfile.mkdtemp(prefix=suite + ".copy-", dir=folder)
    try:
        if not os.path.exists(os.path.join(root, MARK)):
            os.makedirs(root, exist_ok=True)
            output("cp", "-a", "--reflink=auto", made + "/.", root)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(os.path.join("/etc", name), os.path.join(root, "etc", name))
        debs = os.path.join(os.path.abspath(folder), suite + ".debs")
        os.makedirs(debs, exist_ok=True)
        binds = [(debs, "/var/cache/apt/archives")] + [(os.path.abspath(path), inside)
                                                       for path, inside in binds]
        env = [f"{name}={value}" for name, value in os.environ.items() if PASSED.match(name)]
        with tempfile.NamedTemporaryFile("w") as list_of_binds:
            list_of_binds.write("".join(f"{path}\n{inside}\n" for path, inside in binds))
            list_of_binds.flush()
            outer = own_network() if alone else []
            return subprocess.run(
                [*DIES_WITH_US, *outer, "unshare", "--mount", "--propagation", "private", "--pid",
                 "--fork", "--kill-child", "--ipc", "sh", "-c", INIT, "sh", root,
                 list_of_binds.name, start, f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", *env,
                 *command], check=False, **more)
    finally:
        if not keep:
            shutil.rmtree(root)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", metavar="SUITE")
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--keep", metavar="ROOT", help="run in ROOT, and leave it as it is then")
    parser.add_argument("--bind", metavar="PATH:INSIDE", action="append", default=[],
                        help="show a folder of this machine inside")
    parser.add_argument("--dir", metavar="INSIDE", default="/", help="where COMMAND starts")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:split]), words[split + 1:]
    # a signal leaves no copy of a system behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if any(":" not in bind for bind in options.bind):
        parser.error("--bind needs PATH:INSIDE")
    try:
        if command:
            binds = [bind.split(":", 1) for bind in options.bind]
            sys.exit(run(options.folder, options.suite, command, options.keep, binds,
                         options.dir).returncode)
        print(base(options.folder, options.suite))
    except Missing as e:
        print(f"SKIPPED: no system {options.suite}: {e}")
        sys.exit(77)


if __name__ == "__main__":
    main()
