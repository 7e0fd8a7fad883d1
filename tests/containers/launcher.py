# SPDX-License-Identifier: BSD-2-Clause
"""Starts a program under the limits of a container, one of them or all, without a container engine.

The launcher needs root for namespaces, mounts and control groups. The program runs as another user
without capabilities. Use as a program:

    launcher.py --build build [--limits seccomp,user,...] [--cpus 0.5] [--value NAME=VALUE] --
    COMMAND

In the container the build folder is /opt/roost, and this folder /opt/tests.
"""
import argparse
import ctypes
import ctypes.util
import errno
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1, 2, 4, 32, 4096, 16384, 1 << 18)
KEPT_FLAGS = {'nosuid': 2, 'nodev': 4, 'noexec': 8, 'noatime': 1024, 'nodiratime': 2048,
              'relatime': 1 << 21}
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, SIGKILL = 24, 38, 1, 9
ACT_ALLOW, ACT_ERRNO = 0x7fff0000, 0x00050000
CMP_EQ, CMP_MASKED_EQ = 4, 7
NEW_NAMESPACES = 0x7e020000
AF_INET6, AF_ALG, AF_VSOCK, AF_MAX = 10, 38, 40, 45
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF = 1, 51
ADDRESS = '172.17.0.2'
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

ENDING = signal.SIGTERM, signal.SIGHUP

# The limits of a default container. --value can change their values.
LIMITS = {
    'seccomp': 'docker',  # Docker's list; further words after + are calls that it also refuses
    'user': 0,  # a user without an entry in passwd and without capabilities; 0: a random one
    'shm': 64 << 20,  # bytes of /dev/shm
    'memlock': 64 << 10,  # bytes of RLIMIT_MEMLOCK
    'readonly': 1,  # only /dev/shm can be written
    'noipv6': 'off',  # 'off': no IPv6 address; 'none': no such socket family
    'cpus': 1.0,  # quota of the control group
    # its own: lo, and eth0 with an address; 'lo': only lo; 'down': lo is down; a number: the MTU
    # of eth0
    'network': 'eth0',
}
CONTAINER = list(LIMITS)
# Further limits, for tests of one condition.
LIMITS['nooffload'] = 1       # a kernel without UDP_SEGMENT and UDP_GRO
LIMITS['nosteering'] = 1      # a kernel without SO_ATTACH_REUSEPORT_CBPF
LIMITS['fakes'] = {}          # path: other contents of a file of the kernel


class Missing(Exception):
    """This machine does not allow a limit; the text has the reason."""


def must(done, what):
    if done < 0:
        e = ctypes.get_errno()
        raise OSError(e, f'{what}: {os.strerror(e)}')
    return done


def mount(source, target, kind, flags=0, data=None):
    enc = [s.encode() if s is not None else None for s in (source, target, kind)]
    must(libc.mount(enc[0], enc[1], enc[2], ctypes.c_ulong(flags), data.encode() if data else None),
         f'mount {target}')


# ---- control groups ----

class CpuGroup:
    """A control group with a quota of CPU time, of the version (1 or 2) that has the cpu
    controller."""

    def __init__(self, cpus, name):
        self.path = None
        self.version, top = self.find()
        path = os.path.join(top, f'roost-test-{os.getpid()}-{name}')
        try:
            if self.version == 2 and 'cpu' not in open(os.path.join(top, 'cgroup.subtree_control'),
                                                       encoding='ascii').read().split():
                self.write(top, 'cgroup.subtree_control', '+cpu')
            os.mkdir(path)
            self.path = path
            if self.version == 2:
                self.write(path, 'cpu.max', f'{int(cpus * 100000)} 100000')
            else:
                self.write(path, 'cpu.cfs_period_us', '100000')
                self.write(path, 'cpu.cfs_quota_us', str(int(cpus * 100000)))
        except OSError as e:
            self.remove()
            raise Missing(
                f'no control group with a quota of CPU time can be made in {top}: '
                f'{e.strerror}') from e

    @staticmethod
    def find():
        """Returns (version, writable folder of our own group's hierarchy)."""
        for line in open('/proc/self/mountinfo', encoding='utf-8', errors='replace'):
            left, right = line.split(' - ')
            kind, _, options = right.split()[:3]
            mount_point = left.split()[4]
            if kind == 'cgroup' and 'cpu' in options.split(','):
                return 1, mount_point
            if kind == 'cgroup2' and 'cpu' in open(os.path.join(mount_point, 'cgroup.controllers'),
                                                   encoding='ascii').read().split():
                return 2, mount_point
        raise Missing('no control group has the cpu controller here')

    @staticmethod
    def write(folder, name, value):
        with open(os.path.join(folder, name), 'w', encoding='ascii') as f:
            f.write(value)

    def join(self, pid):
        self.write(self.path, 'cgroup.procs', str(pid))

    def stat(self):
        """Returns cpu.stat with its own names: nr_throttled, and more."""
        with open(os.path.join(self.path, 'cpu.stat'), encoding='ascii') as f:
            return {k: int(v) for k, v in (line.split() for line in f)}

    def remove(self):
        until = time.monotonic() + 10
        while self.path and os.path.isdir(self.path):
            try:
                os.rmdir(self.path)
            except OSError:
                if time.monotonic() > until:
                    break
                time.sleep(0.02)  # its last process is ending


# ---- seccomp ----

class Comparison(ctypes.Structure):
    _fields_ = [('arg', ctypes.c_uint), ('op', ctypes.c_int), ('a', ctypes.c_uint64),
                ('b', ctypes.c_uint64)]


class Filter:
    """Loads a list of calls through libseccomp."""

    def __init__(self):
        name = ctypes.util.find_library('seccomp')
        if not name:
            raise Missing('no libseccomp.so.2: install libseccomp2')
        self.lib = ctypes.CDLL(name)
        self.lib.seccomp_init.restype = ctypes.c_void_p
        self.lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int,
                                                    ctypes.c_uint, ctypes.c_void_p]
        self.lib.seccomp_load.argtypes = [ctypes.c_void_p]
        self.ctx = self.lib.seccomp_init(ctypes.c_uint32(ACT_ERRNO | errno.EPERM))

    def add(self, name, *comparisons, action=ACT_ALLOW):
        number = self.lib.seccomp_syscall_resolve_name(name.encode())
        array = (Comparison * max(len(comparisons), 1))(*[Comparison(*c) for c in comparisons])
        if number == -1:
            return
        rc = self.lib.seccomp_rule_add_array(self.ctx, action, number, len(comparisons), array)
        if rc not in (0, -errno.EINVAL, -errno.EDOM, -errno.EEXIST):
            raise OSError(-rc, f'seccomp: {name}')

    def load(self):
        rc = self.lib.seccomp_load(self.ctx)
        if rc:
            raise OSError(-rc, 'seccomp_load: ' + os.strerror(-rc))


def docker_filter(denied=()):
    """Loads Docker's default profile for a process without capabilities; calls in `denied` are
    refused, too."""
    f = Filter()
    with open(os.path.join(HERE, 'docker-seccomp.txt'), encoding='ascii') as names:
        for line in names:
            for name in [] if line.startswith('#') else line.split():
                if name not in denied:
                    f.add(name)
    for family in range(AF_MAX + 1):
        if family not in (AF_ALG, AF_VSOCK):
            f.add('socket', (0, CMP_EQ, family, 0))
    for value in (0, 8, 0x20000, 0x20008, 0xffffffff):
        f.add('personality', (0, CMP_EQ, value, 0))
    f.add('clone', (0, CMP_MASKED_EQ, NEW_NAMESPACES, 0))
    f.add('clone3', action=ACT_ERRNO | errno.ENOSYS)
    return f


def kernel_without(families=(), options=()):
    """Allows all but the calls that a kernel without this feature does not know."""
    f = Filter()
    f.ctx = f.lib.seccomp_init(ctypes.c_uint32(ACT_ALLOW))
    for family in families:
        f.add('socket', (0, CMP_EQ, family, 0), action=ACT_ERRNO | errno.EAFNOSUPPORT)
    for level, option in options:
        f.add('setsockopt', (1, CMP_EQ, level, 0), (2, CMP_EQ, option, 0),
              action=ACT_ERRNO | errno.ENOPROTOOPT)
    return f


def make_filters(limits):
    families = [AF_INET6] if limits.get('noipv6') == 'none' else []
    options = [(SOL_UDP, UDP_SEGMENT), (SOL_UDP, UDP_GRO)] if 'nooffload' in limits else []
    options += [(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF)] if 'nosteering' in limits else []
    filters = []
    if 'seccomp' in limits:
        filters.append(
            docker_filter([] if limits['seccomp'] == 'docker' else limits['seccomp'].split('+')))
    if families or options:
        # the stricter answer of two filters counts
        filters.append(kernel_without(families, options))
    return filters


# ---- the child ----

def set_mounts(build, limits):
    mount(None, '/', None, MS_REC | MS_PRIVATE)
    mount('proc', '/proc', 'proc')
    mount('tmpfs', '/opt', 'tmpfs', MS_NOSUID, 'size=1m,mode=755')
    for source, target in ((build, '/opt/roost'), (HERE, '/opt/tests')):
        os.mkdir(target)
        mount(source, target, None, MS_BIND | MS_REC)
    for target in ('/tmp', '/run'):
        mount('tmpfs', target, 'tmpfs', MS_NOSUID | MS_NODEV, 'size=256m,mode=1777')
    # Never the machine's /dev/shm: files of another user may have the names of this user's.
    mount('tmpfs', '/dev/shm', 'tmpfs', MS_NOSUID | MS_NODEV,
          f"size={limits.get('shm', LIMITS['shm'])},mode=1777")
    for path, text in limits.get('fakes', {}).items():
        set_fake(path, text)
    if 'readonly' in limits:
        remount_readonly()


def set_fake(path, text):
    """Gives a file of the kernel other contents. A missing file gets a file system of its own, at
    the first folder of its path that exists."""
    if not os.path.exists(path):
        top = os.path.dirname(path)
        while not os.path.isdir(top):
            top = os.path.dirname(top)
        mount('tmpfs', top, 'tmpfs', 0, 'mode=755')
        os.makedirs(os.path.dirname(path), exist_ok=True)
        name = path
    else:
        name = '/run/fake-' + path.replace('/', '-')
    with open(name, 'w', encoding='ascii') as f:
        f.write(text + '\n')
    os.chmod(name, 0o644)
    if name != path:
        mount(name, path, None, MS_BIND)


def remount_readonly():
    with open('/proc/self/mountinfo', encoding='utf-8', errors='replace') as f:
        mounts = [(line.split()[4], line.split()[5]) for line in f]
    for mount_point, options in mounts:
        if mount_point.startswith('/proc') or mount_point == '/dev/shm':
            continue
        flags = sum(KEPT_FLAGS.get(o, 0) for o in options.split(','))
        try:
            mount(None, mount_point.replace('\\040', ' '), None,
                  MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
        except OSError:
            if mount_point in ('/', '/tmp', '/opt', '/run'):
                raise


def set_network(limits):
    def ip(*words):
        done = subprocess.run(['ip', *words], env={'PATH': PATH}, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise Missing(f"ip {' '.join(words)}: {done.stderr.strip()}")

    if limits.get('noipv6') == 'off':
        for which in ('all', 'default'):
            try:
                with open(f'/proc/sys/net/ipv6/conf/{which}/disable_ipv6', 'w',
                          encoding='ascii') as f:
                    f.write('1')
            except FileNotFoundError:
                pass  # a kernel without IPv6
    if limits['network'] == 'down':
        return
    ip('link', 'set', 'lo', 'up')
    if limits['network'] == 'lo':
        return
    ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'other')
    if limits['network'].isdigit():
        ip('link', 'set', 'eth0', 'mtu', limits['network'])
    ip('addr', 'add', ADDRESS + '/16', 'dev', 'eth0')
    for link in ('eth0', 'other'):
        ip('link', 'set', link, 'up')


def drop_rights(uid):
    for cap in range(64):
        if libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0:
            break
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def die_with_parent():
    must(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), 'PR_SET_PDEATHSIG')


def enter(build, limits):
    """Runs in the child that is the first process of the new namespace."""
    die_with_parent()
    filters = make_filters(limits)  # before the mounts hide the file
    set_mounts(build, limits)
    if 'network' in limits:
        set_network(limits)
    if 'memlock' in limits:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limits['memlock'],) * 2)
    if 'user' in limits:
        drop_rights(limits['user'] or random.SystemRandom().randrange(10 ** 9, 2 * 10 ** 9))
        die_with_parent()  # another user has no such signal any more
    must(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 'no_new_privs')
    for f in reversed(filters):  # Docker's is last: it refuses to load further ones
        f.load()


def child(build, limits, command, env, report):
    """Ends with the launcher, and the program with the child, however the launcher ends."""
    try:
        die_with_parent()
        # The network's own namespace comes with no rights to lose: all at once.
        flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | (
            CLONE_NEWNET if 'network' in limits else 0)
        must(libc.unshare(flags), 'unshare')
        pid = os.fork()
        if pid:
            os.close(report)
            status = os.waitpid(pid, 0)[1]
            os._exit(os.waitstatus_to_exitcode(status) & 0xff if os.WIFEXITED(status)
                     else 128 + os.WTERMSIG(status))
        enter(build, limits)
        os.chdir('/')
        os.execvpe(command[0], command, env)
    except (OSError, Missing) as e:
        os.write(report, f"{'M' if isinstance(e, Missing) else 'E'}{e}".encode())
    finally:
        os._exit(125)


# ---- for others ----

def limits_of(names, **values):
    return {name: values.get(name, LIMITS[name]) for name in names}


class Container:
    """A program that runs under limits. stdout and stderr are pipes unless given."""

    def __init__(self, build, limits, command, env=None, stdout=subprocess.PIPE):
        if os.geteuid() != 0:
            raise Missing('not root: namespaces and control groups take CAP_SYS_ADMIN')
        self.group = self.pid = None
        try:
            if 'cpus' in limits:
                self.group = CpuGroup(limits['cpus'], f'{time.monotonic_ns():x}')
            self.start(build, limits, command, env, stdout)
        except BaseException:  # also that of a signal
            self.close()
            raise

    def start(self, build, limits, command, env, stdout):
        full = {'PATH': PATH, 'HOME': '/', **(env or {})}
        hears, says = os.pipe()
        self.out_r, out_w = os.pipe() if stdout == subprocess.PIPE else (None, stdout)
        self.err_r, err_w = os.pipe() if stdout == subprocess.PIPE else (None, stdout)
        go_r, go_w = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            os.close(go_w)
            os.read(go_r, 1)
            null = os.open('/dev/null', os.O_RDONLY)
            for fd, number in ((null, 0), (out_w, 1), (err_w, 2)):
                os.dup2(fd, number)
            child(os.path.abspath(build), limits, command, full, says)
        for fd in (says, go_r, *(f for f in (out_w, err_w) if self.out_r is not None)):
            os.close(fd)
        if self.group:
            self.group.join(self.pid)
        os.close(go_w)
        with os.fdopen(hears, encoding='utf-8') as f:
            trouble = f.read()
        if trouble:
            self.wait()
            if trouble[0] == 'M':
                raise Missing(trouble[1:])
            raise RuntimeError('launcher: ' + trouble[1:])

    def communicate(self, limit):
        """Returns (status, stdout, stderr). A program that runs for more than `limit` seconds is
        killed: status None."""
        words, until, status = {self.out_r: b'', self.err_r: b''}, time.monotonic() + limit, None
        with selectors.DefaultSelector() as s:
            for fd in words:
                s.register(fd, selectors.EVENT_READ)
            while s.get_map() and time.monotonic() < until:
                for key, _ in s.select(max(0, until - time.monotonic())):
                    more = os.read(key.fd, 65536)
                    words[key.fd] += more
                    if not more:
                        s.unregister(key.fd)
            late = bool(s.get_map())
        if late:
            os.kill(self.pid, SIGKILL)
        status = self.wait()
        for fd in words:
            os.close(fd)
        return None if late else status, words[self.out_r].decode(
            errors='replace'), words[self.err_r].decode(errors='replace')

    def wait(self):
        """Returns the exit status."""
        status = os.waitpid(self.pid, 0)[1]
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def close(self):
        """Ends the program, if it runs."""
        if self.pid:
            os.kill(self.pid, SIGKILL)
            self.wait()
        if self.group:
            self.group.remove()


def run(build, limits, command, env=None, limit=90):
    """Runs a program. Returns (status, stdout, stderr, cpu.stat of its group or {})."""
    c = Container(build, limits, command, env)
    try:
        done = c.communicate(limit)
        return (*done, c.group.stat() if c.group else {})
    finally:
        c.close()


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('--build', required=True)
    p.add_argument('--limits', default=','.join(CONTAINER))
    p.add_argument('--value', action='append', default=[])
    p.add_argument('command', nargs='+')
    a = p.parse_args()
    values = {}
    for name, _, value in (v.partition('=') for v in a.value):
        values[name] = type(LIMITS[name])(value)
    for number in ENDING:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    c = Container(a.build, limits_of([n for n in a.limits.split(',') if n], **values), a.command,
                  stdout=1)
    try:
        sys.exit(c.wait())
    finally:
        c.close()


if __name__ == '__main__':
    try:
        main()
    except Missing as e:
        print(e)
        sys.exit(77)
