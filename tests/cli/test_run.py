#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost run`: the environment it sets, the files that the preload shows, exit statuses."""
import os
import shutil
import subprocess
import sys
import tempfile

from cli import ROOST, check, finish, one_line_error, run

BUILD = sys.argv[2]
LIB = os.path.join(os.path.realpath(BUILD), 'lib')
SANITIZED = ('ASAN_OPTIONS' in os.environ or 'TSAN_OPTIONS' in os.environ
             or 'UBSAN_OPTIONS' in os.environ)

one_line_error('no such program', run('run', '--', 'no-such-program-anywhere'), 127,
               'no-such-program-anywhere')
one_line_error('not executable', run('run', '/etc/passwd'), 126, '/etc/passwd')
one_line_error('no library there', run('run', 'true', env={'ROOST_LIBDIR': '/etc'}), 1,
               'ROOST_LIBDIR')
with tempfile.TemporaryDirectory() as d:
    # A command without its libraries prints where it looked.
    alone = os.path.join(d, 'roost')
    shutil.copy(ROOST, alone)
    r = subprocess.run([alone, 'run', 'true'], capture_output=True, text=True, check=False)
    one_line_error('library not found', r, 1, 'make', 'ROOST_LIBDIR')

if SANITIZED:
    # A sanitized preload needs the sanitizer's run-time library in programs that have none.
    finish()

check('status of the program', run('run', 'sh', '-c', 'exit 7').returncode == 7)
r = run('run', '--', 'sh', '-c', 'test -e /proc/self/fd/1 || exit 9')
check('a program has its stdout', r.returncode == 0, r)
r = subprocess.run(['sh', '-c', 'exec "$@" >&-', 'sh', ROOST, 'run', '--', 'sh', '-c',
                    'test -e /proc/$$/fd/1 || exit 9'], capture_output=True, text=True, timeout=100,
                   check=False)
check('a program finds closed what was closed', r.returncode == 9, r)
r = run('run', '--port', 'udp:127.0.0.9,mtu=1024', '--timeout-scale', '3', '--', 'sh', '-c',
        'echo "$ROOST_PORT $ROOST_TIMEOUT_SCALE"; echo "$LD_LIBRARY_PATH"; echo "$@"', 'sh',
        '--port', 'x')
out = r.stdout.splitlines()
check('environment, and arguments untouched',
      r.returncode == 0 and out[0] == 'udp:127.0.0.9,mtu=1024 3' and out[1].split(':')[0] == LIB
      and out[2] == '--port x', r)
r = run('run', '--port', 'udp:127.0.0.9', '--', 'sh', '-c',
        '''sh -c 'sh -c "echo \\$ROOST_PORT \\$LD_LIBRARY_PATH"; true'; true''')
check('children of children have the port and the library',
      r.returncode == 0 and r.stdout.startswith(f'udp:127.0.0.9 {LIB}'), r)
r = run('run', 'sh', '-c', 'echo "$LD_LIBRARY_PATH"', env={'LD_LIBRARY_PATH': '/somewhere'})
check('what was in LD_LIBRARY_PATH stays', r.stdout.strip() == LIB + ':/somewhere', r)
check('without --port, ROOST_PORT stays', run('run', 'sh', '-c', 'echo "$ROOST_PORT"',
                                              env={'ROOST_PORT': 'shm'}).stdout == 'shm\n')

# The view: python uses stat, access, open, opendir, as programs do.
PROBE = r'''
import ctypes, os, stat
dev = '/dev/infiniband/uverbs_roost0'
assert stat.S_ISCHR(os.stat(dev).st_mode)
assert os.access(dev, os.R_OK | os.W_OK)
os.close(os.open(dev, os.O_RDWR))
top = '/sys/class/infiniband'
assert 'roost0' in os.listdir(top), os.listdir(top)
assert open(top + '/roost0/ports/1/gid_attrs/types/0').read() == 'RoCE v2\n'
assert open(top + '_verbs/uverbs_roost0/ibdev').read() == 'roost0\n'
# What C programs use: fopen, through ctypes.
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
assert c.fopen(b'/sys/class/infiniband/roost0/node_type', b'r')
# Nothing else is touched.
assert not os.path.exists('/sys/class/infiniband_other')
assert not os.path.exists('/dev/infinibandX') and not os.path.exists('/dev/infiniband/other')
assert os.path.isdir('/sys/class/net') and os.path.exists('/dev/null')
assert open('/proc/self/comm').read()
'''
r = run('run', sys.executable, '-c', PROBE)
check('the view', r.returncode == 0, r)

# Each attribute, in the kernel's format (drivers/infiniband/core/sysfs.c, device.c, uverbs_main.c),
# without a NIC open: that of 127.0.0.9.
ATTRIBUTES = {
    'node_type': '1: CA', 'node_guid': '0252:6f73:7f00:0009',
    'sys_image_guid': '0252:6f73:7f00:0009', 'fw_ver': '0.1.0',
    'node_desc': 'Roost, a RoCE v2 NIC in software',
    'ports/1/state': '4: ACTIVE', 'ports/1/phys_state': '5: LinkUp',
    'ports/1/link_layer': 'Ethernet',
    'ports/1/rate': '40 Gb/sec (4X FDR10)', 'ports/1/cap_mask': '0x04000000', 'ports/1/lid': '0x0',
    'ports/1/lid_mask_count': '0',
    'ports/1/sm_lid': '0x0', 'ports/1/sm_sl': '0', 'ports/1/pkeys/0': '0xffff',
    'ports/1/gids/0': '0000:0000:0000:0000:0000:ffff:7f00:0009',
    'ports/1/gids/15': ':'.join(['0000'] * 8),
    'ports/1/gid_attrs/types/0': 'RoCE v2', 'ports/1/gid_attrs/ndevs/0': 'lo',
    '../../infiniband_verbs/abi_version': '6',
    '../../infiniband_verbs/uverbs_roost0/ibdev': 'roost0',
    '../../infiniband_verbs/uverbs_roost0/abi_version': '1',
    '../../infiniband_verbs/uverbs_roost0/dev': '1:3',
}
READ = r'''
import os, sys
for name in sys.argv[1:]:
    path = os.path.normpath('/sys/class/infiniband/roost0/' + name)
    assert os.access(path, os.R_OK), path
    print(open(path).read(), end='')
'''
r = run('run', '--port', 'udp:127.0.0.9', sys.executable, '-c', READ, *ATTRIBUTES)
for (name, wanted), have in zip(ATTRIBUTES.items(), r.stdout.splitlines()):
    check(f'attribute {name}', have == wanted, r)
check('all attributes', r.returncode == 0 and len(r.stdout.splitlines()) == len(ATTRIBUTES), r)
r = run('run', '--port', 'udp:127.0.0.9', 'sh', '-c',
        'cd /sys/class/infiniband && echo *; ls /sys/class/infiniband/roost0/device/net; '
        'cat /sys/class/infiniband/roost0/device/net/lo/type')
check('names of devices and interfaces',
      r.returncode == 0 and r.stdout.split() == ['roost0', 'lo', '772'], r)
r = run('run', '--port', 'udp:127.0.0.9', 'sh', '-c',
        'cat /sys/class/infiniband/roost0/ports/1/gid_attrs/types/1')
check('a GID that is not there has no type', r.returncode == 1 and 'Invalid argument' in r.stderr,
      r)
r = run('run', '--port', 'udp:127.0.0.9', 'sh', '-c',
        'echo 1 >/sys/class/infiniband/roost0/node_guid')
check('attributes are read-only', r.returncode != 0 and 'denied' in r.stderr, r)
r = run('run', sys.executable, '-c',
        'import os; os.environ.pop("ROOST_VIEW"); print(os.path.exists("/dev/null"))')
check('without ROOST_VIEW nothing changes', r.stdout == 'True\n', r)

# The library that a program gets is ours, and it works.
r = run('run', '--port', 'shm', sys.executable, '-c', '''
import ctypes
v = ctypes.CDLL('libibverbs.so.1')
n = ctypes.c_int()
v.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
v.ibv_get_device_name.restype = ctypes.c_char_p
v.ibv_get_device_name.argtypes = [ctypes.c_void_p]
print(n.value, v.ibv_get_device_name(v.ibv_get_device_list(ctypes.byref(n))[0]).decode())
print(open('/proc/self/maps').read())
''')
check('our library', r.returncode == 0 and 'roost0' in r.stdout and BUILD in r.stdout, r)
finish()
