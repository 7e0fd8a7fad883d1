# SPDX-License-Identifier: BSD-2-Clause
"""Builds the guest's image: Debian's kernel, its rdma_rxe module, and this machine's own RDMA
programs.

The kernel package is downloaded and unpacked, never installed. Programs and libraries are those
installed on this machine: both ends of a row run the same perftest. All files stay in one folder
and are made again only if their sources have changed.
"""
import os
import platform
import re
import subprocess

import initramfs
from initramfs import ENV, Missing, output, tool

KERNEL = 'linux-image-amd64'  # the package that depends on the current kernel of the release
# dash is the shell: busybox's own would take its applets for ip and tc
TOOLS = ['dash', 'ip', 'rdma', 'tc']
MODULES = ['virtio_pci', 'virtio_net', 'crc32_pclmul', 'crc32_generic', 'ipv6', 'ib_uverbs',
           'rdma_ucm', 'rdma_rxe', 'sch_netem']


def libraries(file):
    """Returns the files that the dynamic linker would load for a program, and the linker itself."""
    text = subprocess.run(['ldd', file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, env=ENV, check=False).stdout
    return set(re.findall(r'(/\S+) \(0x', text))


def needed_by_threads():
    """Returns the library that the C library opens when a thread ends by pthread_exit(), as those
    of rping do. No program names it."""
    for line in output('ldconfig', '-p').splitlines():
        if re.match(r'\s*libgcc_s\.so\.1 .*x86-64', line):
            return line.split(' => ')[1]
    raise Missing('no libgcc_s.so.1')


def contents(tree, release, programs):
    """Returns {path in the guest: file on this machine}."""
    # Names as they are linked, contents as they are: libfoo.so.1 is a link, the loader opens what
    # it is called.
    files = {'bin/busybox': tool('busybox')}
    drivers = '/etc/libibverbs.d/rxe.driver'
    provider = None
    for line in output('ldconfig', '-p').splitlines():
        if re.match(r'\s*libibverbs\.so\.1 .*x86-64', line):
            folder = os.path.join(os.path.dirname(line.split(' => ')[1]), 'libibverbs')
            provider = next((os.path.join(folder, f) for f in os.listdir(folder)
                             if f.startswith('librxe-')), None)
    if not provider or not os.path.exists(drivers):
        raise Missing('no rxe provider of libibverbs (package ibverbs-providers)')
    files[drivers[1:]] = drivers
    files[os.path.realpath(provider)[1:]] = provider
    files[provider[1:]] = provider
    programs = [tool(p) for p in TOOLS + programs]
    for program in programs:
        files['bin/' + os.path.basename(program)] = program
    for binary in programs + [provider]:
        for library in libraries(binary):
            inside = library[1:] if '/ld-linux' in library else 'lib/' + os.path.basename(library)
            files[inside] = library
    files['lib/libgcc_s.so.1'] = needed_by_threads()
    return dict(files, **initramfs.modules(tree, release, MODULES))


def build(folder, programs, package=KERNEL):
    """Builds missing files, with these programs in the guest. Returns (kernel, initial file
    system)."""
    if platform.machine() != 'x86_64':
        raise Missing(f'the guest is made for x86_64 only, this is {platform.machine()}')
    os.makedirs(folder, exist_ok=True)
    release, tree = initramfs.kernel(
        folder, package, lambda: output('apt-get', '-q', '-o', 'DPkg::Lock::Timeout=300', 'update'))
    image = initramfs.pack(folder, release, contents(tree, release, programs), 'dash')
    return os.path.join(tree, 'boot', 'vmlinuz-' + release), image
