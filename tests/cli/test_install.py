#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Roost is installed in a folder, with all man pages, headers and completions. A kernel outside of
the tree, as in docs/kernels.md, is built against it with the options of pkg-config alone, loaded
into a running node, called, replaced by its version 2, and unloaded.

Arguments: ROOST BUILD-FOLDER SOURCE-FOLDER.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import cli
from cli import LIMIT, check, finish, last_json, one_line_error, run
from node import Node, addresses

BUILD, SOURCE = sys.argv[2:4]
scratch = tempfile.TemporaryDirectory()
root, work = os.path.join(scratch.name, 'root'), os.path.join(scratch.name, 'work')


def tool(*words, env=None):
    return subprocess.run(words, env=dict(os.environ, **(env or {})), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT, check=False)


def path_in(*patterns):
    found = [p for pattern in patterns
             for p in glob.glob(os.path.join(root, pattern), recursive=True)]
    check(f'one {patterns} is installed', len(found) == 1)
    return found[0]


r = tool('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', root)
check('installed', r.returncode == 0, r)
cli.ROOST = path_in('**/bin/roost')
libraries = os.path.dirname(path_in('**/roost/librdmacm.so.1'))

manuals = os.listdir(os.path.join(SOURCE, 'docs/man'))
check('man pages in the source', 'roost.1' in manuals and 'roost_kv.3' in manuals)
wanted = {f'share/man/man{section}': [name for name in manuals if name.endswith('.' + section)]
          for section in '137'}
wanted['include/roost'] = os.listdir(os.path.join(SOURCE, 'include/roost'))
for folder, names in wanted.items():
    installed = os.listdir(path_in(f'**/{folder}'))
    check(f'{folder}: {sorted(set(names) ^ set(installed))}', sorted(names) == sorted(installed))
# What the shells load asks the command, where it will be: below the prefix, without the folder.
for shell, file in {'bash': 'bash-completion/completions/roost', 'zsh': 'zsh/site-functions/_roost',
                    'fish': 'fish/vendor_completions.d/roost.fish'}.items():
    with open(path_in(f'**/share/{file}'), encoding='utf-8') as f:
        check(f'the completion of {shell} asks the installed command',
              f'/{os.path.relpath(cli.ROOST, root)} completion {shell}' in f.read())

pkg = {'PKG_CONFIG_PATH': os.path.dirname(path_in('**/roost.pc')), 'PKG_CONFIG_SYSROOT_DIR': root}

shutil.copytree(os.path.join(SOURCE, 'examples/kernels/sum'), work)
with open(os.path.join(work, 'sum.c'), encoding='utf-8') as f:
    source = f.read()
check('a kernel in under 60 lines', len(source.splitlines()) < 60)
with open(os.path.join(work, 'old.c'), 'w', encoding='utf-8') as f:
    f.write(source.replace('.abi = ROOST_KERNEL_ABI', '.abi = ROOST_KERNEL_ABI + 1'))
r = tool('make', '-C', work, 'CFLAGS=-O2 -Wall -Wextra -Werror', env=pkg)
check('built', r.returncode == 0, r)
r = tool('make', '-C', work, 'sum.so', env=pkg)
cflags = tool('pkg-config', '--cflags', 'roost', env=pkg).stdout.split()
r = tool('cc', *cflags, '-fPIC', '-shared', '-o', f'{work}/old.so', f'{work}/old.c')
check('one of another ABI', r.returncode == 0, r)

where = addresses('shm')


def client():
    r = tool(f'{work}/client', where[0],
             env={'ROOST_PORT': f'shm:{where[1]}', 'LD_LIBRARY_PATH': libraries})
    return r.returncode, r.stdout


NOBODY = (1, 'the node has no kernel sum: roost kernel load ./sum.so\n')
node = Node(f'shm:{where[0]}', '--name', 'here')
try:
    check('not loaded', client() == NOBODY)
    r = run('kernel', 'load', 'here', f'{work}/sum.so')
    check('loaded', r.returncode == 0 and not r.stderr, r)
    check('called', client() == (0, 'the sum is 500500, the largest 0\n'))
    one_line_error('its op-code is taken', run('kernel', 'load', 'here', f'{work}/sum2.so'), 1,
                   'sum2.so', 'replace')
    one_line_error('no such file', run('kernel', 'load', 'here', f'{work}/none.so'), 1, 'none.so')
    one_line_error('no shared object', run('kernel', 'load', 'here', f'{work}/Makefile'), 1,
                   'Makefile')
    one_line_error('a shared object without a kernel',
                   run('kernel', 'replace', os.path.join(libraries, 'librdmacm.so.1')), 1)
    one_line_error('another ABI', run('kernel', 'replace', f'{work}/old.so'), 1, 'old.so',
                   'version 3')
    check('nothing of it changed anything', client() == (0, 'the sum is 500500, the largest 0\n'))
    # The same path with a new file: the node has a copy of the file that it loaded.
    shutil.copy(f'{work}/sum2.so', f'{work}/sum.so')
    r = run('kernel', 'replace', 'here', f'{work}/sum.so')
    check('replaced', r.returncode == 0, r)
    check('called in version 2', client() == (0, 'the sum is 500500, the largest 1000\n'))
    kernels = {k['name']: k for k in last_json(run('kernel', 'list', '--json')).get('kernels', [])}
    check('listed', kernels.get('sum', {}).get('version') == 2 and kernels['sum']['loaded'] is True
          and kernels['sum']['op'] == 0x1000 and kernels['sum']['calls'] == 3
          and kernels['get']['loaded'] is False)
    r = run('kernel', 'list', 'here')
    check('listed in a table',
          ['sum', '0x1000', '2', 'loaded'] in [line.split() for line in r.stdout.splitlines()], r)
    r = run('kernel', 'stat')
    check('its calls are counted',
          ['sum', '3', '3'] in [line.split()[:3] for line in r.stdout.splitlines()], r)
    r = run('kernel', 'unload', 'sum')
    check('unloaded', r.returncode == 0, r)
    check('gone', client() == NOBODY)
    one_line_error('nothing to unload', run('kernel', 'unload', 'here', 'sum'), 1,
                   'roost kernel list')
    one_line_error('nor by its op-code', run('kernel', 'unload', 'here', '0x1000'), 1,
                   'roost kernel list')
    one_line_error('nothing to replace', run('kernel', 'replace', 'here', f'{work}/sum.so'), 1,
                   'load')
    check('loaded again', run('kernel', 'load', f'{work}/sum.so').returncode == 0)
    check('and unloaded by its op-code', run('kernel', 'unload', '0x1000').returncode == 0)
finally:
    check('the node ends well', node.end()[0] == 0)
finish()
