# SPDX-License-Identifier: BSD-2-Clause
"""An emulated machine and the link to it: a tap device with addresses, and a guest that runs one
shell line at a time (init)."""
import contextlib
import fcntl
import os
import random
import socket
import struct
import subprocess
import time

from initramfs import Missing, tool

TUNSETIFF, TUNSETPERSIST, IFF_TAP, IFF_NO_PI = 0x400454ca, 0x400454cb, 0x0002, 0x1000


class Tap:
    """A new tap device with its own network: `ours` and `theirs` are the addresses, for IPv4 and
    IPv6."""

    def __init__(self, mtu):
        if os.geteuid() != 0:
            raise Missing('not root: a tap device takes CAP_NET_ADMIN')
        self.name = f'roost{os.getpid()}'
        try:
            tun = os.open('/dev/net/tun', os.O_RDWR)
            try:
                fcntl.ioctl(tun, TUNSETIFF,
                            struct.pack('16sH22x', self.name.encode(), IFF_TAP | IFF_NO_PI))
                fcntl.ioctl(tun, TUNSETPERSIST, 1)
            finally:
                os.close(tun)
        except OSError as e:
            raise Missing(f'no tap device: /dev/net/tun: {e.strerror}') from e
        # 198.18.0.0/15 is for network tests (RFC 2544), fd00::/8 for private use. Two runs use
        # different addresses.
        four = f'198.{random.choice((18, 19))}.{random.randrange(256)}.'
        six = (
            f'fd{random.randrange(256):02x}:{random.randrange(65536):x}:'
            f'{random.randrange(65536):x}::')
        self.ours, self.theirs = {4: four + '1', 6: six + '1'}, {4: four + '2', 6: six + '2'}
        self.ip('addr', 'add', self.ours[4] + '/24', 'dev', self.name)
        self.set_mtu(mtu)
        self.ip('addr', 'add', self.ours[6] + '/64', 'dev', self.name, 'nodad')

    @staticmethod
    def ip(*words):
        subprocess.run([tool('ip'), *words], check=True, stdout=subprocess.DEVNULL)

    def set_mtu(self, mtu):
        self.ip('link', 'set', self.name, 'mtu', str(mtu), 'up')

    def keep_neighbours(self):
        """Makes the entries of the guest's addresses permanent; it has sent packets from them."""
        for address in self.theirs.values():
            self.ip('neigh', 'change', address, 'dev', self.name, 'nud', 'permanent')

    def remove(self):
        self.ip('link', 'del', self.name)


def no_segmentation(qemu):
    """Since qemu 8 a guest may take the datagrams of one UDP_SEGMENT whole.

    Then there would be no packets between the two ends.
    """
    known = subprocess.run([qemu, '-device', 'virtio-net-pci,help'], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return ''.join(f',{name}=off' for name in ('guest_uso4', 'guest_uso6', 'host_uso')
                   if f'{name}=' in known)


class Machine:
    """A qemu on a tap device. `options` are qemu's options, `words` are added to the kernel's
    command line.

    `control` is the qemu device of the character device named control. The guest's init listens
    there.
    """

    def __init__(self, qemu, folder, image, tap, mtu, options, words, control):
        self.console = os.path.join(folder, 'console.log')
        theirs, self.control = socket.socketpair()
        self.pending = b''
        kernel, initramfs = image
        words = (f'quiet panic=-1 {words} roost.ip={tap.theirs[4]}/24 roost.ip6={tap.theirs[6]}/64 '
                 f'roost.mtu={mtu}')
        command = [
            qemu, *options, '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot',
            '-kernel', kernel, '-initrd', initramfs, '-append', words,
            '-netdev', f'tap,id=n0,ifname={tap.name},script=no,downscript=no',
            '-device',
            'virtio-net-pci,netdev=n0,mac=52:54:00:77:00:02,romfile=' + no_segmentation(qemu),
            '-serial', f'file:{self.console}',
            '-chardev', f'socket,id=control,fd={theirs.fileno()}', *control]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        pass_fds=[theirs.fileno()])
        theirs.close()

    def wait_answer(self, limit):
        """Waits until init reads lines. Earlier lines may be lost, so it repeats one until init
        answers."""
        until = time.monotonic() + limit
        tries = 0
        while True:
            tries += 1
            try:
                self.control.settimeout(5)
                self.control.sendall(f'echo @@"HELLO" {tries}\n'.encode())
                self._take(f'@@HELLO {tries}\n'.encode(), 1)
                self._take(b'@@RC 0\n', 5)
                return
            except TimeoutError:
                if time.monotonic() > until:
                    raise

    def _take(self, mark, limit):
        until = time.monotonic() + limit
        while mark not in self.pending:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f'the guest is silent after {limit} s; its last words: {self.pending[-300:]!r}')
            self.control.settimeout(left)
            try:
                data = self.control.recv(65536)
            except socket.timeout:
                continue
            if not data:
                raise RuntimeError(f'the guest is gone: see {self.console}')
            self.pending += data
        before, self.pending = self.pending.split(mark, 1)
        return before

    def run(self, line, limit=120):
        """Runs one shell line. Returns (exit status, output)."""
        assert '\n' not in line
        self.control.sendall(line.encode() + b'\n')
        text = self._take(b'@@RC ', limit)
        return int(self._take(b'\n', limit)), text.decode(errors='replace')

    def start(self, command, name=''):
        """Runs one shell line in the background, one of a name at a time. See status() and text().

        The shell runs the other words itself: a program takes the guest ten milliseconds."""
        status = f'/tmp/status{name}'
        self.run(f': >{status}; (({command}); echo $? >{status}) >/tmp/out{name} 2>&1 &')

    def status(self, name=''):
        """Returns the exit status of the started line; None: it runs."""
        text = self.run(f'read -r status </tmp/status{name}; echo "$status"')[1].strip()
        return int(text) if text else None

    def text(self, name='', limit=''):
        """Returns the output of the started line, at most the last `limit` bytes."""
        return self.run(f'tail -c {limit} /tmp/out{name}' if limit else f'cat /tmp/out{name}')[1]

    def listens(self, port):
        return self.run(f"grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6")[0] == 0

    def kill(self, name):
        self.run(f'killall -9 {name} 2>&1; while pidof {name}; do sleep 0.1; done')

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.control.close()


class Pair:
    """This machine and an emulated one at the two ends of a tap device, for `with`. A subclass
    starts the machine, `guest`."""

    def __init__(self, mtu):
        self.guest, self.tap = None, Tap(mtu)

    @contextlib.contextmanager
    def starting(self):
        """Closes the pair if the block, which starts the guest, does not end well."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.guest:
            self.guest.stop()
        self.tap.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
