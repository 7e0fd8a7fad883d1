#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that comments of C files, and the documents, name files and functions that exist.
Usage: cited.py TOP, or cited.py self-test.

A comment names a file by its name or the end of its path (qp.h, src/nic/qp.h), and a function as
name(). A function exists if some code of the tree has its name, so functions of the C library
count. Names of other projects are in FOREIGN_FILE and FOREIGN_FUNCTION. Every name in the last
column of docs/glossary.md exists, too: types, members, constants."""
import os
import re
import sys
import tempfile

from structure import OURS, documents, files

CODE = ('.c', '.h', '.S')
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
FILE = re.compile(r'(?<![\w/.<-])(?:[\w-]+/)*[\w.-]*\w\.(?:c|h|S|py|sh|md)\b(?![\w*])')
FUNCTION = re.compile(r'\b([a-z]\w*)\(\)', re.I)
# Files of the Linux kernel, of rdma-core and of other programs; names in examples.
FOREIGN_FILE = re.compile(
    r'(?:drivers|net|io_uring|rdma|infiniband|engines|librdmacm|include/(?:uapi|net|rdma))/'
    r'|rxe\w*\.[ch]$'
    r'|(?:cma|uverbs_main|mckey|get_clock|ib_verbs|ibta_vol1_c12|in6|memcached)\.[ch]$'
    r'|(?:.*/)?(?:test_|fuzz_)?NAME\.[ch]$|room/file\.h$|roost/examples/|(?:follow|squares)\.c$'
    # not written yet: docs/architecture.md, "Where new parts go"
    r'|(?:xrc|dcqcn)\.c$'
    r'|a\.b\.c$')  # an address
FOREIGN_FUNCTION = {
    'check_psn', 'cm_convert_to_ms', 'cm_dreq_handler', 'cm_issue_drep', 'cma_any_addr',
    'cma_check_port', 'epoll_wait', 'ib_uverbs_attach_mcast', 'io_ring_exit_work', 'io_uring_enter',
    'leave_work', 'mlx5_ib_query_device', 'nlmsg_ok', 'pivot_root', 'rxe_qp_from_attr',
    'rxe_rcv_mcast_pkt', 'svc_run', 'ucma_listen', 'uct_ib_device_init', 'udp_send_skb'}


def sources(top):
    """C files of the tree: path and text."""
    for path, lines in files(top, OURS):
        if path.endswith(CODE):
            yield path, '\n'.join(lines)


def texts(top):
    """What may name a file or a function: path, number of the first line, text."""
    for path, text in sources(top):
        for match in COMMENT.finditer(text):
            yield path, text.count('\n', 0, match.start()) + 1, match[0]
    for path, lines in documents(top):
        yield path, 1, '\n'.join(lines)


def paths(top):
    """The ends of the paths of all files: qp.h, nic/qp.h, src/nic/qp.h; headers of the system."""
    known = set()
    for folder, folders, names in os.walk(top):
        folders[:] = [f for f in folders if not f.startswith(('.git', 'build'))]
        for name in names:
            parts = os.path.relpath(os.path.join(folder, name), top).split('/')
            known.update('/'.join(parts[i:]) for i in range(len(parts)))
    for _, text in sources(top):
        known.update(re.findall(r'#\s*include <([^>]+)>', text))
    return known


def glossary(top, names):
    """The names that the glossary gives to its words."""
    for path, lines in documents(top):
        for number, line in enumerate(lines, 1):
            if path == 'docs/glossary.md' and line.startswith('|'):
                for quoted in re.findall(r'`([^`]+)`', line.rstrip('| ').rpartition('|')[2]):
                    for name in re.findall(r'[A-Za-z_]\w+', quoted):
                        if name.lower() not in names and name not in ('struct', 'enum'):
                            yield f'{path}:{number}: no {name}'


def problems(top):
    known, names = paths(top), set(FOREIGN_FUNCTION)
    for path, text in sources(top):
        names.update(word.lower() for word in re.findall(r'\w+', COMMENT.sub(' ', text)))
    for path, lines in files(top, OURS):
        if path.endswith('.py'):
            names.update(re.findall(r'\bdef (\w+)', '\n'.join(lines).lower()))
        elif path.endswith('.sh'):
            names.update(line.partition('()')[0] for line in lines if re.match(r'\w+\(\)', line))
    yield from glossary(top, names)
    for path, first, text in texts(top):
        for match in FILE.finditer(text):
            if match[0] not in known and not FOREIGN_FILE.match(match[0]):
                yield f'{path}:{first + text.count(chr(10), 0, match.start())}: no file {match[0]}'
        for match in FUNCTION.finditer(text):
            if match[1].lower() not in names:
                yield (f'{path}:{first + text.count(chr(10), 0, match.start())}: no function '
                       f'{match[1]}()')


SELF_TEST = {
    'src/nic/qp.h': 'struct nic_qp *qp; void qp_free(void);\n'
                    '/* qp.h, nic/qp.h and src/nic/qp.h; qp_free() */\n',
    'src/nic/rx.c': '#include <time.h>\n/* as net/ipv4/udp.c; time.h; see gone.c, other/qp.h,\n'
                    ' * and lost_function(), unlike QP_FREE() */\n',
    'docs/glossary.md': '| qp | a pair | IBA | `struct nic_qp`, `qp_free()` |\n'
                        '| lost | `not this` | | `qp.lost` |\n',
    'docs/page.md': 'In src/nic/lost.h is `qp_lost()`. 1.h is no file, check_psn() is foreign.\n',
}
EXPECTED = [
    'docs/glossary.md:2: no lost', 'src/nic/rx.c:2: no file gone.c',
    'src/nic/rx.c:2: no file other/qp.h', 'src/nic/rx.c:3: no function lost_function()',
    'docs/page.md:1: no file src/nic/lost.h', 'docs/page.md:1: no file 1.h',
    'docs/page.md:1: no function qp_lost()']


def self_test():
    with tempfile.TemporaryDirectory() as top:
        for path, text in SELF_TEST.items():
            os.makedirs(os.path.join(top, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(top, path), 'w', encoding='utf-8') as f:
                f.write(text)
        found = list(problems(top))
    if found != EXPECTED:
        print(f'found {found}, should find {EXPECTED}')
    return found != EXPECTED


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == 'self-test':
        sys.exit(self_test())
    found = list(problems(sys.argv[1]))
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
