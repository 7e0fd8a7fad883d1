#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests the Debian packages: builds them, checks them with lintian, installs them in a fresh
system, runs the tests of debian/tests there, and checks that nothing is left when they are removed.

usage: run.py --source DIR --folder DIR [--host | [--steps STEP,...] [--quick] SUITE...]

With --host the packages are built on this machine with little optimization, without the tests of a
build, without packages of debug symbols and without optimizing programs as a whole, and installed
in a fresh system of this release. Otherwise all steps run in fresh systems of each suite (default:
bookworm and trixie), the packages for arm64 are built there by a cross compiler and tried in an
emulated arm64 machine (tests/arm64/packages.py), and the Containerfile is executed. --steps takes
some of the steps native, cross and container; with --quick the packages are built without tests,
with little optimization and without packages of debug symbols.

tests/distros/system.py makes the systems in the folder. The exit status is 0 if all tests passed,
and 77, with the reason in the last line, if this machine can make no system; with
ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import glob
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path[:0] = [os.path.join(TOP, 'tests', folder)
                for folder in ('common', 'distros', 'stock', 'arm64')]
import packages as in_guest  # pylint: disable=wrong-import-position
import system  # pylint: disable=wrong-import-position
from chroot import Chroot, Failed, say  # pylint: disable=wrong-import-position
from container import carry_out  # pylint: disable=wrong-import-position
from debian import Missing, codename  # pylint: disable=wrong-import-position
from skip import skip  # pylint: disable=wrong-import-position
from system import copy_source  # pylint: disable=wrong-import-position

SUITES = ['bookworm', 'trixie']
STEPS = ['native', 'cross', 'container']
# Without the tests of a build, packages of debug symbols, and optimizing programs as a whole.
QUICK = {'DEB_BUILD_OPTIONS': 'nocheck optimize=-lto noautodbgsym', 'DEB_CFLAGS_APPEND': '-O1 -g0'}
PACKAGES = ['roost', 'libroost-dev', 'roost-doc']
# The packages that debian/tests/control needs in addition.
FOR_TESTS = ['ibverbs-utils', 'perftest', 'rdmacm-utils', 'gcc', 'libc6-dev', 'make', 'pkg-config']
EM_AARCH64 = 183  # <elf.h>
LIMIT = 1800  # seconds, for any one command


def on_host(*command, cwd, env=None):
    done = subprocess.run(command, cwd=cwd, env=dict(os.environ, **(env or {})),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', timeout=LIMIT,
                          check=False)
    if done.returncode:
        raise Failed(f'{" ".join(command)}: exit status {done.returncode}', done.stdout)
    return done.stdout


def lintian_words(folder):
    """Returns the lintian command for the changes file: each error is a failure."""
    changes = glob.glob(os.path.join(folder, '*.changes'))
    if len(changes) != 1:
        raise Failed(f'{len(changes)} files of changes in {folder}')
    return ['lintian', '--allow-root', '--fail-on', 'error', os.path.basename(changes[0])]


def debs(folder, architecture):
    found = [sorted(glob.glob(os.path.join(folder, f'{name}_*_{kind}.deb'))) for name, kind
             in ((name, 'all' if name == 'roost-doc' else architecture) for name in PACKAGES)]
    if any(len(paths) != 1 for paths in found):
        raise Failed(f'not one package of each name in {folder}: {sum(found, [])}')
    return [paths[0] for paths in found]


# ---- building ----

def build_on_host(source, folder):
    """Builds on this machine, in a copy of the source. Returns the folder with the packages."""
    out = os.path.join(folder, 'host')
    shutil.rmtree(out, ignore_errors=True)
    copy_source(source, os.path.join(out, 'roost'))
    for program in ('dpkg-buildpackage', 'dh', 'lintian'):
        if not shutil.which(program):
            raise Missing(f'no program {program}: scripts/setup check installs it')
    on_host('dpkg-buildpackage', '-us', '-uc', '-b', '-Pnocheck', cwd=os.path.join(out, 'roost'),
         env=QUICK)
    on_host(*lintian_words(out), cwd=out)
    return out


def build_in(chroot, source, architecture, native, quick):
    """Builds in a fresh system with the packages of Build-Depends alone. Returns the folder with
    the packages."""
    options = QUICK if quick else {'DEB_BUILD_OPTIONS': '' if native else 'nocheck'}
    copy_source(source, chroot.path('src/roost'))
    profiles = [] if native else ['-Pcross,nocheck']
    if not native:
        chroot.run('dpkg', '--add-architecture', architecture)
        chroot.run('apt-get', 'update', '-q')
        chroot.install(f'crossbuild-essential-{architecture}', 'qemu-user')
    chroot.install('dpkg-dev', 'fakeroot', 'lintian')
    chroot.run('apt-get', 'build-dep', '-q', '-y', '--no-install-recommends', f'-a{architecture}',
              *profiles, './', start='/src/roost')
    # A native build makes the source package, too, which lintian checks.
    chroot.run('dpkg-buildpackage', '-us', '-uc', f'-a{architecture}',
              *(profiles + ['-b'] if not native else []), start='/src/roost',
              env=options)
    chroot.run(*lintian_words(chroot.path('src')), start='/src')
    return chroot.path('src')


def check_foreign(chroot, folder, architecture):
    """Checks packages that do not run on this machine: their architecture, that they can be
    installed, and that the emulator starts the command."""
    for path in debs(folder, architecture)[:2]:
        if on_host('dpkg-deb', '-f', path, 'Architecture', cwd='/').strip() != architecture:
            raise Failed(f'{path} is not for {architecture}')
    chroot.run('apt-get', 'install', '-q', '-y', '--dry-run',
              *(f'/src/{os.path.basename(path)}' for path in debs(folder, architecture)))
    chroot.run('dpkg-deb', '-x', f'/src/{os.path.basename(debs(folder, architecture)[0])}',
              '/unpacked')
    machines = set()
    for path in glob.glob(chroot.path('unpacked/usr/lib/*/roost/*.so*')) + [
            chroot.path('unpacked/usr/bin/roost')]:
        if not os.path.islink(path):
            with open(path, 'rb') as f:
                machines.add(struct.unpack_from('<18xH', f.read(20))[0])
    if machines != {EM_AARCH64}:
        raise Failed(f'programs of machines {machines} in a package for {architecture}')
    if not chroot.run('qemu-aarch64', '/unpacked/usr/bin/roost', '--version').startswith('roost '):
        raise Failed('the command does not start under qemu-aarch64')


# ---- installing, running, removing ----

def files(root):
    """Returns all paths of a system, without the logs and caches of the package manager."""
    passing = ('proc', 'sys', 'dev', 'tmp', 'run', 'var/log', 'var/cache', 'var/tmp', 'var/lib/apt',
               'var/lib/dpkg', 'packages', 'src')
    found = set()
    for where, folders, names in os.walk(root):
        here_is = os.path.relpath(where, root)
        folders[:] = [name for name in folders
                      if os.path.normpath(os.path.join(here_is, name)) not in passing]
        found.update(os.path.normpath(os.path.join(here_is, name)) for name in folders + names)
    return found


def check_examples(root, source):
    """The documentation names files of examples: all are installed."""
    def names(folder):
        return {os.path.relpath(path, folder).removesuffix('.gz')
                for path in glob.glob(os.path.join(folder, '**'), recursive=True)
                if os.path.isfile(path)}

    missing = (names(os.path.join(source, 'examples')) - {'meson.build'}
               - names(os.path.join(root, 'usr/share/doc/roost/examples')))
    if missing:
        raise Failed(f'examples that no package has: {sorted(missing)}')


def use(chroot, source, packages):
    """Installs the packages, runs their tests, removes them."""
    os.makedirs(chroot.path('packages'))
    for path in packages:
        shutil.copy(path, chroot.path('packages'))
    copy_source(source, chroot.path('src/roost'))
    names = ['/packages/' + os.path.basename(path) for path in packages]
    chroot.run('apt-get', 'update', '-q')
    # The dependencies are installed first: only files of the packages themselves are compared.
    depends = ' '.join(on_host('dpkg-deb', '-f', path, 'Depends', cwd='/') for path in packages)
    wanted = sorted({word for word in (part.split()[0] for part in depends.replace(
        '\n', ',').split(',') if part.strip()) if word not in PACKAGES})
    chroot.install(*FOR_TESTS, *wanted)
    before = files(chroot.root)
    chroot.run('apt-get', 'install', '-q', '-y', '--no-install-recommends', *names)
    if len(files(chroot.root) - before) < 50:
        raise Failed('the packages installed next to nothing')
    check_examples(chroot.root, source)
    for test in ('programs', 'develop'):
        chroot.run(f'debian/tests/{test}', start='/src/roost', alone=True)
    chroot.run('apt-get', 'purge', '-q', '-y', *PACKAGES)
    left, gone = files(chroot.root) - before, before - files(chroot.root)
    if left or gone:
        raise Failed(f'after they were removed: left {sorted(left)[:20]}, gone {sorted(gone)[:20]}')


# ---- all steps ----

def step(what, work):
    start = time.monotonic()
    result = work()
    say(f'ok: {what} ({time.monotonic() - start:.0f} s)')
    return result


def check_host(source, folder):
    suite = codename()
    if not suite:
        raise Missing('no Debian')
    built = step('built on this machine, lintian has no error',
                 lambda: build_on_host(source, folder))
    architecture = on_host('dpkg', '--print-architecture', cwd='/').strip()
    with Chroot(folder, suite, 'use') as chroot:
        step(f'{suite}: installed, run, removed',
             lambda: use(chroot, source, debs(built, architecture)))


def check_native(source, folder, suite, quick):
    with Chroot(folder, suite, 'build') as builder:
        builder.run('apt-get', 'update', '-q')
        architecture = builder.run('dpkg', '--print-architecture').strip()
        built = step(f'{suite}: built, lintian has no error',
                     lambda: build_in(builder, source, architecture, True, quick))
        with Chroot(folder, suite, 'use') as chroot:
            step(f'{suite}: installed, run, removed',
                 lambda: use(chroot, source, debs(built, architecture)))


def check_cross(source, folder, suite, quick):
    with Chroot(folder, suite, 'cross') as builder:
        if builder.run('dpkg', '--print-architecture').strip() != 'amd64':
            return
        built = step(f'{suite}: built for arm64, lintian has no error',
                     lambda: build_in(builder, source, 'arm64', False, quick))
        step(f'{suite}: the packages for arm64', lambda: check_foreign(builder, built, 'arm64'))
        try:
            step(f'{suite}: the packages for arm64: installed, run, removed in a guest',
                 lambda: in_guest.use(os.path.join(folder, 'arm64'), source, suite,
                                      debs(built, 'arm64')))
        except in_guest.Failed as e:
            raise Failed(str(e), e.text) from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--source', required=True, metavar='DIR')
    parser.add_argument('--folder', required=True, metavar='DIR', help='where systems are made')
    parser.add_argument('--host', action='store_true',
                        help='build on this machine, and the short form of the rest')
    parser.add_argument('--steps', default=','.join(STEPS), metavar='STEP,...',
                        help=f'some of {", ".join(STEPS)}; default: all')
    parser.add_argument('--quick', action='store_true',
                        help='build without tests, and optimize less')
    parser.add_argument('suites', nargs='*', metavar='SUITE')
    args = parser.parse_args()
    steps = args.steps.split(',')
    if not set(steps) <= set(STEPS):
        parser.error(f'--steps: some of {", ".join(STEPS)}')
    # a signal leaves no copy of a system behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    source, folder = os.path.abspath(args.source), os.path.abspath(args.folder)
    try:
        if system.HERE_IS_ONE:
            print('SKIPPED: this is a system of tests/distros already')
            sys.exit(77)
        system.check_rights()
        if args.host:
            check_host(source, folder)
        else:
            for suite in args.suites or SUITES:
                if 'native' in steps:
                    check_native(source, folder, suite, args.quick)
                if 'cross' in steps:
                    check_cross(source, folder, suite, args.quick)
            if 'container' in steps:
                step('Containerfile: carried out, and run', lambda: carry_out(source, folder))
    except Missing as e:
        skip(f'the packages: {e}')
    except Failed as e:
        print(f'{e.output}\nFAILED: {e}')
        sys.exit(1)


if __name__ == '__main__':
    main()
