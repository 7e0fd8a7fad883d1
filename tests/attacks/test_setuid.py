#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A set-user-ID program must ignore the environment of its caller: it would choose the port, and so
a file that root writes. Usage: test_setuid.py PROGRAM"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from skip import skip  # noqa: E402

NOBODY = 65534
KEPT = b'what root has written\n'


def main():
    if os.geteuid() != 0:
        skip('needs root, to make a set-user-ID program of root\'s')
    with tempfile.TemporaryDirectory(prefix='roost-setuid-') as folder:
        os.chmod(folder, 0o755)
        program, private = os.path.join(folder, 'open'), os.path.join(folder, 'private')
        shutil.copy(sys.argv[1], program)
        os.chmod(program, 0o4755)
        os.mkdir(private, 0o700)
        kept = os.path.join(private, 'kept')
        with open(kept, 'wb') as f:
            f.write(KEPT)
        env = {'ROOST_PORT': f'udp:127.73.1.8,pcap={kept}', 'PATH': os.environ['PATH']}
        ran = subprocess.run([program], env=env, user=NOBODY, group=NOBODY, extra_groups=[],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
                             check=False)
        if 'secure=0' in ran.stdout:
            skip(f'{folder} is mounted without set-user-ID programs')
        with open(kept, 'rb') as f:
            left = f.read()
        names = os.listdir(private)
    if 'secure=1' not in ran.stdout or left != KEPT or names != ['kept']:
        print(f'FAILED: {names}, {left[:40]!r}\n{ran.stdout}{ran.stderr}')
        sys.exit(1)


main()
