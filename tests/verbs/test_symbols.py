#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The drop-in library's symbols: those of the table, those of the distribution's library, and
enough for its other libraries to load.

usage: test_symbols.py LIB_FOLDER TABLE GENERATOR
"""
import ctypes.util
import os
import re
import subprocess
import sys
import tempfile

# Libraries of a distribution that are linked against libibverbs. Only installed ones are tested.
CONSUMERS = ["libmlx5.so.1", "libefa.so.1", "libmlx4.so.1", "libmana.so.1", "librdmacm.so.1",
             "libfabric.so.1", "ucx/libuct_ib.so.0", "libucx/libuct_ib.so.0"]

# The interface to providers of rdma-core 44 to 65. Each change since 44 has a node of its own; no
# names were removed.
PRIVATE_NODES = [34, 57, 59, 65]
PRIVATE_NAMES = ["ibv_cmd_create_cq_ex2", "ibv_wr_opcode_str", "ibv_cmd_alloc_dmah",
                 "ibv_cmd_reg_mr_ex", "ibv_cmd_create_comp_cntr", "ibv_cmd_query_port_speed",
                 "ibv_dmabuf_heap_alloc", "verbs_set_ops", "ibv_query_gid_type"]

failures = 0


def check(good, what):
    global failures
    print("ok    " if good else "FAILED", what)
    failures += not good


def exported(path):
    """{(symbol, node)} of a shared library."""
    text = subprocess.run(["readelf", "--dyn-syms", "--wide", path], check=True,
                          capture_output=True, text=True).stdout
    found = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or words[6] in ("UND", "ABS") or words[4] not in ("GLOBAL", "WEAK"):
            continue
        name, _, node = words[7].replace("@@", "@").partition("@")
        if node:
            found.add((name, node))
    return found


def table(path):
    rows, copies = set(), []
    with open(path, encoding="ascii") as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if len(words) == 3 and words[1] == "=":
                copies.append((words[0], words[2]))
            elif len(words) in (2, 3):
                rows.add((words[1], words[0]))
    return rows | {(name, node) for node, source in copies for name, of in rows if of == source}


def system_folder():
    name = ctypes.util.find_library("ibverbs")
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                   "/usr/lib"):
        if name and os.path.exists(os.path.join(folder, name)):
            return folder
    return None


LOAD = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_GLOBAL)
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libibverbs.so" in line}
print(*maps)
"""

# mlx5 recognises its devices by the memory behind the public struct. Our device must not look like
# one.
ASK = """
import ctypes, os, sys
ctypes.CDLL("libibverbs.so.1", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
device = verbs.ibv_get_device_list(None)[0]
mlx5 = ctypes.CDLL(sys.argv[1])
mlx5.mlx5dv_is_supported.restype = ctypes.c_bool
print(mlx5.mlx5dv_is_supported(ctypes.c_void_p(device)))
"""


def python(code, lib, *args):
    env = dict(os.environ, LD_LIBRARY_PATH=lib, LD_BIND_NOW="1")
    return subprocess.run([sys.executable, "-c", code, *args], env=env, capture_output=True,
                          text=True, check=False)


def check_consumers(lib, folder):
    ours = os.path.realpath(os.path.join(lib, "libibverbs.so.1"))
    for name in CONSUMERS:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            continue
        run = python(LOAD, lib, path)
        check(run.returncode == 0, f"{name} loads {run.stderr.strip()[-300:]}")
        if run.returncode == 0:
            check(run.stdout.split() == [ours],
                  f"{name} uses our library, and no other: {run.stdout.strip()}")
    mlx5 = os.path.join(folder, "libmlx5.so.1")
    if os.path.exists(mlx5):
        run = python(ASK, lib, mlx5)
        check(run.stdout.strip() == "False",
              f"mlx5dv_is_supported says no: {run.stdout.strip()} {run.stderr[-300:]}")


SMALL_TABLE = """
T_1.0 first stub
T_PRIVATE_1 second stub-null
T_PRIVATE_1 third data
T_PRIVATE_1 fourth stub-void
T_PRIVATE_2 = T_PRIVATE_1
"""


def check_generator(generator):
    """A row `node = node` must give the first node all names of the second."""
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)

        with open(at("table"), "w", encoding="ascii") as out:
            out.write(SMALL_TABLE)
        subprocess.run([generator, at("table"), at("map"), at("stubs.c")], check=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", at("small.so"), at("stubs.c"),
                        f"-Wl,--version-script={at('map')}"], check=True)
        text = subprocess.run(["readelf", "--dyn-syms", "--wide", at("small.so")], check=True,
                              capture_output=True, text=True).stdout
        for symbol in ("first@@T_1.0", "second@@T_PRIVATE_1", "second@T_PRIVATE_2",
                       "third@T_PRIVATE_2", "fourth@T_PRIVATE_2"):
            check(re.search(rf"\s{re.escape(symbol)}$", text, re.M), f"generator gives {symbol}")


def main():
    lib, table_path, generator = (os.path.abspath(path) for path in sys.argv[1:4])
    have, want = exported(os.path.join(lib, "libibverbs.so.1")), table(table_path)
    check(len(want) > 140, f"the table has {len(want)} rows")
    check(want <= have, f"all of the table is exported: {sorted(want - have)}")
    check(have <= want, f"nothing else is exported: {sorted(have - want)}")
    for node in PRIVATE_NODES:
        missing = {name for name in PRIVATE_NAMES if (name, f"IBVERBS_PRIVATE_{node}") not in have}
        missing |= {f"verbs_register_driver_{node}"} - {name for name, of in have
                                                        if of == f"IBVERBS_PRIVATE_{node}"}
        check(not missing, f"providers of the private interface {node} load: {sorted(missing)}")
    folder = system_folder()
    if folder:
        theirs = exported(os.path.join(folder, "libibverbs.so.1"))
        # Without the duplicates of 2007 (symbols.txt), which are not the default versions.
        theirs = {(name, node) for name, node in theirs if node != "IBVERBS_1.0"
                  or (name, "IBVERBS_1.1") not in theirs}
        check(theirs <= have,
              f"all of the distribution's library is there: {sorted(theirs - have)}")
        check_consumers(lib, folder)
    check_generator(generator)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
