# SPDX-License-Identifier: BSD-2-Clause
"""Helpers of the tests of `roost`: they run the command and check its output. Arguments of each
test: ROOST BUILD-FOLDER."""
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from namespaces import PATH, ip  # noqa: E402, F401  (PATH: for the tests)
from skip import skip  # noqa: E402, F401  (for the tests)
from stop import stop  # noqa: E402, F401  (for the tests)

ROOST = sys.argv[1]
LIMIT = 200  # seconds: a command that hangs is a failure, not a slow test

failures = 0


def run(*args, env=None, limit=LIMIT, before=()):
    """Runs `roost ARGS`, by the command with the words `before`. The result has returncode, stdout,
    stderr."""
    full = dict(os.environ)
    full.pop('ROOST_PORT', None)
    full.update(env or {})
    try:
        return subprocess.run([*before, ROOST, *args], env=full, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as e:
        return subprocess.CompletedProcess(e.cmd, -1, '', f'still running after {limit} s')


def obeying_modes():
    """Returns the words that start a program for which the modes of files hold, also if root starts
    it. Returns None if this is refused."""
    words = ['setpriv', '--bounding-set=-dac_override,-dac_read_search']
    if os.geteuid():
        return []
    refused = subprocess.run([*words, 'true'], stderr=subprocess.DEVNULL, check=False).returncode
    return None if refused else words


def check(what, ok, result=None):
    """Counts a failure and prints it."""
    global failures
    if ok:
        return
    failures += 1
    print(f'FAILED: {what}')
    if result is not None:
        print(f'  {result.args} -> {result.returncode}\n  stdout: {result.stdout!r}\n  stderr: '
              f'{result.stderr!r}')


def loopback_up():
    """Does what `ip link set lo up` does; not every system has this program."""
    get, put, up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        name, flags = struct.unpack('16sh', fcntl.ioctl(s, get, struct.pack('16sh', b'lo', 0)))
        fcntl.ioctl(s, put, struct.pack('16sh', name, flags | up))


def own_network():
    """Restarts the script in a network namespace of its own, without the programs of other tests.
    Skips the test if it lacks the rights."""
    inside = 'ROOST_TEST_NETWORK'
    if os.environ.pop(inside, None):
        loopback_up()
        return
    words = ['unshare', '-n' if os.geteuid() == 0 else '-rn']
    if subprocess.run([*words, 'true'], stderr=subprocess.DEVNULL, check=False).returncode:
        skip('no network namespace of its own: unshare is refused')
    os.environ[inside] = '1'
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


def last_json(result):
    """Returns the object that --json prints last; {} if there is none."""
    try:
        return json.loads(result.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {}


def one_line_error(what, result, status, *words):
    """Checks that an error is one line on stderr that names the remedy, with nothing on stdout."""
    lines = result.stderr.strip().splitlines()
    check(what, result.returncode == status and len(lines) == 1 and not result.stdout
          and all(w in result.stderr for w in words), result)


def finish():
    sys.exit(1 if failures else 0)
