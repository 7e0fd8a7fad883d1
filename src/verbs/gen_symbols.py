#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes the version script and the stubs of a drop-in library from its table of symbols.

usage: gen_symbols.py TABLE MAP STUBS.c
"""
import re
import sys


def read_table(path):
    """Returns [(node, symbol, kind)] and {node: node that it copies}."""
    rows, copies = [], {}
    with open(path, encoding="ascii") as table:
        for number, line in enumerate(table, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if len(words) == 3 and words[1] == "=":
                copies[words[0]] = words[2]
            elif len(words) in (2, 3):
                rows.append((words[0], words[1], words[2] if len(words) == 3 else ""))
            else:
                sys.exit(f"{path}:{number}: node symbol [kind], or node = node")
    for node, source in copies.items():
        if source not in {row[0] for row in rows}:
            sys.exit(f"{path}: {node} copies {source}, which has no rows")
    return rows, copies


def is_private(node):
    return "PRIVATE" in node


def node_order(node):
    return is_private(node), node.startswith("ROOST"), [int(n) for n in re.findall(r"[0-9]+", node)]


def version_script(rows, copies):
    """Public nodes inherit from the previous one, private nodes from none. All other symbols are
    local."""
    out, previous = [], None
    for node in sorted({row[0] for row in rows} | set(copies), key=node_order):
        parent = previous if previous and not is_private(node) else ""
        out.append(node + " {")
        names = sorted(row[1] for row in rows if row[0] == node)
        if names:
            out.append("\tglobal:")
            out += [f"\t\t{name};" for name in names]
        if previous is None:
            out += ["\tlocal:", "\t\t*;"]
        out += ["}" + (f" {parent}" if parent else "") + ";", ""]
        previous = node if not is_private(node) else previous
    return "\n".join(out)


STUBS = {
    "stub": "int {0}(void);\nint {0}(void)\n{{\n\terrno = ENOSYS;\n\treturn ENOSYS;\n}}\n",
    "stub-null": "void *{0}(void);\nvoid *{0}(void)\n{{\n\terrno = ENOSYS;\n\treturn 0;\n}}\n",
    "stub-void": "void {0}(void);\nvoid {0}(void)\n{{\n}}\n",
    "stub-socket": "long {0}(void);\nlong {0}(void)\n{{\n\terrno = ENOSYS;\n\treturn -1;\n}}\n",
    "none": "int {0}(void);\nint {0}(void)\n{{\n\terrno = EOPNOTSUPP;\n\treturn EOPNOTSUPP;\n}}\n",
    "none-null": "void *{0}(void);\nvoid *{0}(void)\n{{\n\terrno = EOPNOTSUPP;\n\treturn 0;\n}}\n",
    "none-fd": "int {0}(void);\nint {0}(void)\n{{\n\terrno = EOPNOTSUPP;\n\treturn -1;\n}}\n",
    "data": "char {0} = 0;\n",
}

# Passes six register arguments on unchanged, of any type: integers or pointers.
FORWARD = (
    "long {1}(long, long, long, long, long, long);\n"
    "long {0}(long, long, long, long, long, long);\n"
    "long {0}(long a, long b, long c, long d, long e, long f)\n{{\n\treturn {1}(a, b, c, d, e, "
    "f);\n}}\n"
)


def stubs(rows, copies):
    out = ["/* Made by gen_symbols.py. */", "#include <errno.h>", "",
           "#pragma GCC visibility push(default)", ""]
    for _, name, kind in rows:
        if kind:
            out.append(STUBS[kind].format(name))
    for node, source in copies.items():
        for row in rows:
            if row[0] != source:
                continue
            alias = f"{row[1]}__{node}"
            out.append(STUBS[row[2]].format(alias) if row[2] else FORWARD.format(alias, row[1]))
            out.append(f'__asm__(".symver {alias}, {row[1]}@{node}");\n')
    out.append("#pragma GCC visibility pop\n")
    return "\n".join(out)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    rows, copies = read_table(sys.argv[1])
    with open(sys.argv[2], "w", encoding="ascii") as script:
        script.write(version_script(rows, copies))
    with open(sys.argv[3], "w", encoding="ascii") as code:
        code.write(stubs(rows, copies))


if __name__ == "__main__":
    main()
