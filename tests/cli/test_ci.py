#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests examples/ci/ci.sh of docs/guide-ci.md: it passes with the faults that the guide's workflows
name, keeps the files that the guide lists, and fails if a program fails or the capture has damaged
packets.

Arguments: ROOST SCRIPT. The exit status is 77 if rping is not installed; with
ROOST_INTEROP=required in the environment it is then 1.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from cli import LIMIT, ROOST, check, finish, skip
from node import addresses

SCRIPT = sys.argv[2]
SERVER, CLIENT = addresses('udp')
KEPT = {f'{end}.{kind}' for end in ('server', 'client') for kind in ('log', 'pcap', 'txt')}


def ci(folder, **variables):
    env = dict(os.environ, ROOST=ROOST, ARTIFACTS=folder, ADDRESS=SERVER, CLIENT_ADDRESS=CLIENT,
               **variables)
    return subprocess.run([SCRIPT], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=LIMIT, check=False)


def links():
    """Returns the links that the workflows beside the script name, and the script's own."""
    texts = [open(path, encoding='utf-8').read()
             for path in glob.glob(os.path.join(os.path.dirname(SCRIPT), '*.yml')) + [SCRIPT]]
    lists = [found for text in texts
             for found in re.findall(r"(?:link|LINK): \[(.*)\]|link=\$\{LINK:-(.*)\}", text)]
    return sorted(
        {link for found in lists for link in re.split(r"', '", ''.join(found).strip("'"))})


if not shutil.which('rping'):
    skip('no rping (package rdmacm-utils): scripts/setup check installs it')

check('the links of the workflows', len(links()) >= 3)
for link in links():
    with tempfile.TemporaryDirectory() as d:
        r = ci(os.path.join(d, 'new', 'folder'), LINK=link)
        check(f'passes with {link}',
              r.returncode == 0 and f'passed with {link}' in r.stdout and not r.stderr, r)
        check(f'what is kept with {link}',
              set(os.listdir(os.path.join(d, 'new', 'folder'))) == KEPT)
with tempfile.TemporaryDirectory() as d:
    r = ci(d, CLIENT='false')
    check('a client that fails',
          r.returncode == 1 and 'the client failed' in r.stderr and d in r.stderr, r)
    r = ci(d, SERVER='false', CLIENT='false')
    check('a server that fails',
          r.returncode == 1 and 'the server ended before the client' in r.stderr, r)
    r = ci(d, LINK='corrupt=0.05,seed=3')
    check('damaged packets', r.returncode == 1 and 'rule of the protocol' in r.stderr, r)
finish()
