#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""librdmacm.so.1's symbols: those of the table, those of the distribution's library, and no engine
of its own.

usage: test_symbols.py LIB_FOLDER TABLE
"""
import os
import subprocess
import sys

SYSTEM = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]


def symbols(path, defined):
    text = subprocess.run(["nm", "-D", "--defined-only" if defined else "--undefined-only", path],
                          check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].replace("@@", "@") for line in text.splitlines() if "@" in line
            and " A " not in line}


def main():
    lib, table = sys.argv[1:]
    path = os.path.join(lib, "librdmacm.so.1")
    with open(table, encoding="ascii") as lines:
        wanted = {f"{words[1]}@{words[0]}"
                  for words in (line.split("#")[0].split() for line in lines) if words}
    problems = []
    ours = symbols(path, True)
    if ours != wanted:
        problems.append(f"table and library differ: {sorted(ours ^ wanted)}")
    for folder in SYSTEM:
        theirs = os.path.join(folder, "librdmacm.so.1")
        if os.path.exists(theirs):
            missing = symbols(theirs, True) - ours
            if missing:
                problems.append(f"lacks {sorted(missing)}")
            break
    else:
        print("no librdmacm.so.1 of the distribution to compare with")
    if not any(name.startswith("drive_gsi_open@ROOST_PRIVATE") for name in symbols(path, False)):
        problems.append("has an engine of its own instead of libibverbs.so.1's")
    print("\n".join(problems) or f"{len(ours)} symbols")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
