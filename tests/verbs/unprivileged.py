#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs tests of programs that share an address as another user, without any capability and in a
network namespace that root made before.

usage: unprivileged.py LIBRARIES PROGRAM[,ARGUMENT]...

LIBRARIES is the folder of Roost's libraries. The exit status is 0 if all passed, and 77 if this is
not root, who alone can become another user.
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from skip import skip  # noqa: E402

USER = '65534'
LIMIT = 600  # seconds; only a failing test reaches it
AS_USER = ['unshare', '-n', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh', 'setpriv',
           '--reuid', USER, '--regid', USER, '--clear-groups', '--no-new-privs',
           '--bounding-set=-all', '--inh-caps=-all', 'sh', '-c',
           'grep -q "^CapEff:.0000000000000000$" /proc/self/status && exec "$@"', 'sh']

if os.geteuid() != 0:
    skip('only root can become another user')
failed = 0
# The user may have no access to the folder of the build.
with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)
    libraries = shutil.copytree(sys.argv[1], os.path.join(folder, 'lib'), symlinks=True)
    own = os.path.join(folder, 'tmp')
    os.mkdir(own)
    os.chown(own, int(USER), int(USER))
    env = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LD_LIBRARY_PATH': libraries, 'TMPDIR': own,
           'ROOST_TEST_NETWORK': 'own'}
    for words in sys.argv[2:]:
        program, *arguments = words.split(',')
        copy = shutil.copy(program, folder)
        done = subprocess.run([*AS_USER, copy, *arguments], cwd=own, env=env, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        name = ' '.join([os.path.basename(program), *arguments])
        print(f"{'FAILED' if done.returncode else 'ok    '} {name}", flush=True)
        if done.returncode:
            failed += 1
            print(done.stdout, f'(exit status {done.returncode})', flush=True)
sys.exit(1 if failed else 0)
