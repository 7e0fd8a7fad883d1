#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
Runs rdma-core's tests, for rdma_core.py, in their folder. Those of rdma_cm between two addresses
(ADDRESSES): each process has a NIC of its own, and no network device of the kernel's goes with it,
whose address they would take. The next test begins when the processes of the last one have ended:
rdma-core does not wait for the processes that it terminates, and over shm an address belongs to one
process. EXCEPT names those that are left out.

Objects that a skipped test leaves in a cycle are not collected: pyverbs 56 with Python 3.13 closes
the device before it destroys the CQ then, which reads freed memory with any libibverbs.
"""
import gc
import multiprocessing
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

sys.path.insert(0, os.getcwd())
from args_parser import parser  # noqa: E402

tests = SourceFileLoader("tests", os.path.join(os.getcwd(), "__init__.py")).load_module()
base, utils, cm = (sys.modules["tests." + name] for name in ("base", "rdmacm_utils", "base_rdmacm"))
SERVER, CLIENT = os.environ["ADDRESSES"].split()
active = False
two_nodes, AddrInfo = base.RDMACMBaseTest.two_nodes_rdmacm_traffic, cm.AddrInfo


def two_nodes_of_two_addresses(self, connection_resources, test_flow, **more):
    def flow(passive, **words):
        global active
        active = not passive
        test_flow(passive=passive, **words)

    try:
        return two_nodes(self, connection_resources, flow, **more)
    finally:
        for child in multiprocessing.active_children():
            child.join()


def addr_info(src=None, **words):
    return AddrInfo(src=CLIENT if active and src == SERVER else src, **words)


base.RDMATestCase._get_ip_mac = lambda self, dev, port, idx: self.args.append(
    [dev, port, idx, SERVER, "02:00:00:00:00:01"])
base.RDMACMBaseTest.two_nodes_rdmacm_traffic = two_nodes_of_two_addresses
cm.AddrInfo = utils.AddrInfo = addr_info
for name in os.environ["EXCEPT"].split():
    module, case, test = name.split(".")
    case = getattr(sys.modules["tests." + module], case)
    if hasattr(case, test):  # not each release has all of them
        delattr(case, test)
gc.disable()
parser.parse_args()
done = unittest.main(module=tests, exit=False)
sys.stdout.flush()
sys.stderr.flush()
# not by the interpreter's normal end, which collects garbage
os._exit(0 if done.result.wasSuccessful() else 1)
