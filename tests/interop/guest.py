# SPDX-License-Identifier: BSD-2-Clause
"""The guest with the kernel's own RoCE."""
from initramfs import tool
from machine import Machine

# seconds; five on an idle machine, but emulation is slow beside other work: 223 were seen
BOOT_LIMIT = 600
MODULES = 'virtio_pci,virtio_net,crc32_pclmul,ipv6,ib_uverbs,rdma_ucm,rdma_rxe,sch_netem'


class Guest(Machine):
    """The machine. Hardware virtualization of a stock kernel hangs on some hosts: it is
    emulated."""

    def __init__(self, folder, image, tap, mtu):
        super().__init__(tool('qemu-system-x86_64'), folder, image, tap, mtu,
                         ['-accel', 'tcg', '-cpu', 'max,la57=off', '-smp', '1', '-m', '512'],
                         'console=ttyS0 mitigations=off no_timer_check tsc=reliable '
                         f'roost.modules={MODULES} roost.rxe=rxe0 roost.control=ttyS1',
                         ['-serial', 'chardev:control'])

    def wait_ready(self):
        self.wait_answer(BOOT_LIMIT)
        status, text = self.run('test -d /sys/class/infiniband/rxe0 && uname -r')
        if status:
            raise RuntimeError(f'the guest has no rxe0: see {self.console}')
        return 'Linux ' + text.strip()
