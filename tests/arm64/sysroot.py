#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Unpacks in a folder the arm64 packages that Roost is linked with, for a build by Debian's cross
compiler.

usage: sysroot.py FOLDER

FOLDER/root holds the packages, FOLDER/cross.ini is Meson's description of the machine:
`scripts/build build-arm64 --cross-file FOLDER/cross.ini`. Nothing is installed: Debian's libisal2
cannot be there for two architectures at once, and this machine keeps its own. apt fetches the
packages once, with a state of its own, from the archive that it is configured for.

The exit status is 0, or 77, with the reason in the last line, if packages or tools are missing;
with ROOST_INTEROP=required in the environment it is then 1.
"""
import glob
import os
import platform
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "stock"))
from releases import Apt, Missing, archive, output  # noqa: E402
from skip import skip  # noqa: E402

ARCH, TRIPLET = "arm64", "aarch64-linux-gnu"
LIST = os.path.join(HERE, "..", "..", "scripts", "packages.list")

CROSS = """[binaries]
c = [{compiler}]
ar = '{triplet}-gcc-ar'
strip = '{triplet}-strip'
pkgconfig = 'pkg-config' # to Meson before 1.3, pkg-config to later ones
pkg-config = 'pkg-config'
exe_wrapper = [{wrapper}]

[properties]
sys_root = '{root}'
pkg_config_libdir = ['{root}/usr/lib/{triplet}/pkgconfig', '{root}/usr/share/pkgconfig']
needs_exe_wrapper = true

[built-in options]
c_args = ['--sysroot={root}']
c_link_args = ['--sysroot={root}']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'armv8-a'
endian = 'little'
"""


def libraries():
    """Returns the packages of libraries in the group `build`."""
    with open(LIST, encoding="utf-8") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    return ["linux-libc-dev"] + [name for name, *groups in lines if "build" in groups
                                 and name.endswith("-dev")]


def tools():
    for name, package in ((f"{TRIPLET}-gcc", f"gcc-{TRIPLET}"), ("qemu-aarch64", "qemu-user")):
        if not shutil.which(name):
            raise Missing(f"no {name} (package {package}): scripts/setup check installs it")


def turn_links(root):
    """Makes absolute links relative: on this machine they would lead to its own files."""
    for folder, folders, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in folders + files):
            if os.path.islink(path) and os.path.isabs(os.readlink(path)):
                target = os.path.relpath(root + os.readlink(path), folder)
                os.unlink(path)
                os.symlink(target, path)


def apt(folder, suite=None):
    """Runs apt for arm64, for this suite or the release of this machine, with its state in
    FOLDER."""
    return Apt(folder, archive(), suite or platform.freedesktop_os_release()["VERSION_CODENAME"],
               ARCH)


def unpack(folder, packages):
    """Returns FOLDER/root, which is made once for this list of packages."""
    wanted = " ".join([platform.freedesktop_os_release()["VERSION_CODENAME"]] + packages)
    root, stamp = os.path.join(folder, "root"), os.path.join(folder, "root.of")
    if os.path.exists(stamp) and open(stamp, encoding="ascii").read() == wanted:
        return root
    scratch = os.path.join(folder, "unpacking")
    for old in (root, scratch):
        shutil.rmtree(old, ignore_errors=True)
    os.makedirs(scratch)
    source = apt(scratch)
    source.run("apt-get", "-q", "--error-on=any", "update")
    source.run("apt-get", "-q", "-y", "--download-only", "install", *packages)
    for deb in sorted(glob.glob(os.path.join(source.archives, "*.deb"))):
        output("dpkg-deb", "-x", deb, os.path.join(scratch, "root"))
    if not os.path.exists(os.path.join(scratch, "root", "lib")):
        # Since Debian 13 packages have all in usr/lib, and a system has a link; programs name their
        # dynamic linker by it.
        os.symlink("usr/lib", os.path.join(scratch, "root", "lib"))
    turn_links(os.path.join(scratch, "root"))
    os.rename(os.path.join(scratch, "root"), root)
    shutil.rmtree(scratch)
    with open(stamp, "w", encoding="ascii") as file:
        file.write(wanted)
    return root


def words(command):
    return ", ".join(f"'{word}'" for word in command)


def write_changed(path, text):
    """Writes the file only if its contents change: Meson configures again if it is newer."""
    if os.path.exists(path) and open(path, encoding="utf-8").read() == text:
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make(folder):
    """Returns the folder of the packages; cross.ini is beside it."""
    os.makedirs(folder, exist_ok=True)
    tools()
    root = unpack(folder, libraries())
    # Meson finds ccache by itself only for the machine's own compiler.
    compiler = (["ccache"] if shutil.which("ccache") else []) + [f"{TRIPLET}-gcc"]
    write_changed(os.path.join(folder, "cross.ini"),
                  CROSS.format(triplet=TRIPLET, root=root, compiler=words(compiler),
                               wrapper=words(["qemu-aarch64", "-L", root])))
    return root


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        make(os.path.abspath(sys.argv[1]))
    except Missing as e:
        skip(f"nothing was tried on arm64: {e}")


if __name__ == "__main__":
    main()
