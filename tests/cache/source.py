#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds memcached from Debian's source, with the patch in examples/memcached or without it.

usage: source.py --build DIR --folder DIR       prints the path of the patched program

The source is taken from the archive that this machine's apt is configured for, by apt itself with
folders of its own, which checks the signatures. Nothing is installed. Source and programs are kept
in the folder, and built again when the patch changes. The exit status is 77, with the reason in the
last line, if the source is not available; with ROOST_INTEROP=required it is then 1.
"""
import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from debian import Missing, archive, keyring, output
from skip import skip

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OURS = os.path.join(TOP, 'examples', 'memcached')
SUITE = 'bookworm'  # the patch is for its version
FILES = ['memcached', 'hash', 'jenkins_hash', 'murmur3_hash', 'slabs', 'items', 'assoc', 'thread',
         'daemon', 'stats_prefix', 'util', 'cache', 'bipbuffer', 'base64', 'logger', 'crawler',
         'itoa_ljust', 'slab_automove', 'authfile', 'restart', 'proto_text', 'proto_bin']
# The results of its configure on Linux, without the parts that are not used here.
CONFIG = ['ENDIAN_LITTLE', 'HAVE_ACCEPT4', 'HAVE_CLOCK_GETTIME', 'HAVE_EVENTFD',
          'HAVE_GCC_64ATOMICS', 'HAVE_GCC_ATOMICS', 'HAVE_GETOPT_LONG', 'HAVE_INTTYPES_H',
          'HAVE_STDBOOL_H', 'HAVE_SYSCONF']
OPTIONS = ['-std=gnu99', '-O1', '-w', '-D_GNU_SOURCE', '-DHAVE_CONFIG_H', '-DNDEBUG', '-pthread',
           '-I.', '-I', os.path.join(TOP, 'include')]


def download(folder):
    """Returns the folder with Debian's source, which is made once."""
    source = os.path.join(folder, 'source')
    if os.path.exists(source):
        return source
    for tool in ('dpkg-source', 'patch'):
        if not shutil.which(tool):
            raise Missing(f'no {tool} (package dpkg-dev)')
    scratch = os.path.join(folder, 'unpacking')
    shutil.rmtree(scratch, ignore_errors=True)
    for path in ('state/lists/partial', 'cache/archives/partial'):
        os.makedirs(os.path.join(scratch, path))
    files = {'status': '', 'suite.sources':
             f'Types: deb-src\nURIs: {archive()}\nSuites: {SUITE}\nComponents: main\nSigned-By: '
             f'{keyring()}\n', 'apt.conf':
             f'Dir::State "{scratch}/state"; Dir::State::status "{scratch}/status"; Dir::Cache '
             f'"{scratch}/cache";\n'
             f'Dir::Etc::sourcelist "{scratch}/suite.sources"; Dir::Etc::sourceparts "-"; '
             f'APT::Sandbox::User "";\n'}
    for name, text in files.items():
        with open(os.path.join(scratch, name), 'w', encoding='ascii') as file:
            file.write(text)
    env = dict(os.environ, APT_CONFIG=os.path.join(scratch, 'apt.conf'), LC_ALL='C')
    output('apt-get', '-q', '--error-on=any', 'update', env=env, cwd=scratch)
    output('apt-get', '-q', 'source', '--download-only', 'memcached', env=env, cwd=scratch)
    # apt has checked what it downloaded
    output('dpkg-source', '--no-check', '-x', glob.glob(os.path.join(scratch, '*.dsc'))[0],
           os.path.join(scratch, 'source'), cwd=scratch)
    os.rename(os.path.join(scratch, 'source'), source)
    shutil.rmtree(scratch)
    return source


def compile_all(folder, files, lib):
    """Builds the program; Roost's libraries are in `lib`."""
    with open(os.path.join(folder, 'config.h'), 'w', encoding='ascii') as file:
        file.write(''.join(f'#define {name} 1\n' for name in CONFIG)
                   + '#define PACKAGE "memcached"\n#define VERSION "1.6.18"\n'
                   '#include <stdbool.h>\n#include <inttypes.h>\n')

    def one(name):
        output('cc', *OPTIONS, '-c', name + '.c', cwd=folder)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(one, files))
    roost = [] if lib is None else ['-L' + lib, '-l:libibverbs.so.1', '-Wl,-rpath,' + lib]
    output('cc', '-o', 'memcached', *[name + '.o' for name in files], '-pthread', *roost, '-levent',
           cwd=folder)


def stamp():
    h = hashlib.sha256()
    for path in sorted(glob.glob(os.path.join(OURS, '*.patch')) + glob.glob(
            os.path.join(OURS, 'roost.*')) + glob.glob(os.path.join(TOP, 'include/roost/*.h'))):
        with open(path, 'rb') as file:
            h.update(file.read())
    return h.hexdigest()[:16]


def program(build, folder, patched=True):
    """Returns the path of memcached, patched or as Debian has it. Raises Missing."""
    name = 'patched-' + stamp() if patched else 'stock'
    done = os.path.join(folder, name)
    if not os.path.exists(os.path.join(done, 'memcached')):
        os.makedirs(folder, exist_ok=True)
        source = download(folder)
        for old in glob.glob(os.path.join(folder, 'patched-*')) if patched else []:
            shutil.rmtree(old)
        shutil.rmtree(done, ignore_errors=True)
        shutil.copytree(source, done)
        if patched:
            output('patch', '-s', '-p1', '-i', os.path.join(OURS, 'memcached.patch'), cwd=done)
            for one in ('roost.c', 'roost.h'):
                shutil.copy(os.path.join(OURS, one), done)
        compile_all(done, FILES + (['roost'] if patched else []),
                    os.path.join(build, 'lib') if patched else None)
    return os.path.join(done, 'memcached')


def get_or_skip(build, folder, patched=True):
    try:
        return program(os.path.abspath(build), os.path.abspath(folder), patched)
    except Missing as reason:
        return (skip(f"memcached: its source cannot be had from Debian's archive, or not be built: "
                     f"{reason}"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--build', required=True)
    p.add_argument('--folder', required=True)
    a = p.parse_args()
    print(get_or_skip(a.build, a.folder))


if __name__ == '__main__':
    main()
