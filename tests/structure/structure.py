#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Rules that the source as a whole keeps. Usage: structure.py RULE TOP, or structure.py self-test.

includes     no room includes a header of a room below it; installed headers include nothing of src
sizes        a file stays under 800 lines
columns      lines of C, assembly, Python, shell and of the documents have at most 100 columns; a
             line of C with a string may be longer, because the text of a message is not divided,
             and so may tables, drawings and commands of documents
words        every file of ours starts with its licence, names no path of somebody's machine, and
             has no open task
conformance  the rows of docs/conformance.md, the files and the tests they name agree
environment  variables are read by sys_env() alone, which a set-user-ID program does not follow
quotes       a file of the tree that a page of docs quotes ("The file [NAME](../NAME):" and the
             indented text) is quoted as it is
picture      texts of docs/architecture.svg stay in their boxes, and off its arrows, with a font a
             fifth wider than usual
version      the newest entry of debian/changelog has the project's version
names        no identifier has a word that docs/glossary.md replaced; those of C files have none of
             the words as a part
manual       each function of include/roost has a comment, whose first sentence says what the
             function does and begins with a verb (Returns, Posts ...); a page of docs/man names
             each function that is not inline
docs         functions and files of src that docs, README.md and CONTRIBUTING.md name exist, and
             scripts that they run can be executed;
             docs/decisions.md lists the records of docs/decisions
order        the table of docs/architecture.md, "The order of memory", names each file of src,
             without the commands of src/cli, that orders accesses of threads, and tests that exist
mutants      the text of each mutant of tests/nic/mutants.py occurs once in the source, and its
             tests exist
subjects     the subject of a commit has at most 72 characters; in a clone with its history
"""
import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

# From the bottom up: a room includes headers only from itself and from those before it
# (docs/architecture.md, "Rooms").
ROOMS = ['base', 'packet', 'pool', 'port', 'nic', 'drive', 'cm', 'kv', 'kvwire', 'chain',
         'chainasm', 'kernels', 'builtin', 'verbs', 'rdmacm', 'kvclient', 'etcd', 'memcached',
         'cli']
# Rooms that may use less than all above them: the connection manager is pure, and knows datagrams
# only; the store knows memory only; chains know WQEs only; built-in kernels use what any kernel may
# (roost/kernel.h), and the store.
ONLY = {'cm': ['base', 'packet', 'cm'], 'kv': ['base', 'kv'], 'kvwire': ['base', 'kvwire'],
        'chain': ['base', 'chain'], 'chainasm': ['base', 'chainasm'],
        'kvclient': ['base', 'kvwire', 'kvclient'], 'memcached': ['base', 'memcached'],
        'etcd': ['base', 'kvwire', 'etcd'],
        'builtin': ['base', 'kv', 'kvwire', 'builtin']}
# Folders of src/cli whose headers another subcommand's folder uses.
SUBCOMMAND_USES = {'chain': ['perf'], 'demo': ['perf'], 'kernel': ['node'], 'doctor': ['run']}

OURS = ['src', 'include', 'tests', 'bench', 'examples', 'scripts', 'docs', '.ci', 'debian',
        'completion']
MAX_LINES = 800
MAX_COLUMNS = 100  # a tab ends at a multiple of 8
CODE = ('.c', '.h', '.S', '.py', '.sh', '.map')
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
# Home folders and other places that exist on one machine only. The first character keeps URLs and
# "a/work/b" out.
PLACES = re.compile(r'(?:^|[\s"\'=(`,:])/(?:home|root|work|Users|mnt|tmp/b-)/?[\w.-]')
OPEN = re.compile(r'\b(?:TO' + 'DO|FIX' + r'ME|X' + r'XX)\b')


def files(top, folders):
    """Paths relative to top of every text file in these folders, with its lines."""
    for folder in folders:
        for where, dirs, names in os.walk(os.path.join(top, folder)):
            dirs[:] = sorted(d for d in dirs if d != '__pycache__')
            for name in sorted(names):
                path = os.path.join(where, name)
                try:
                    with open(path, encoding='utf-8') as f:
                        yield os.path.relpath(path, top), f.read().splitlines()
                except UnicodeDecodeError:
                    pass  # a capture, a picture


def quoted_include_problem(path, target):
    """Returns the problem of #include "target" in this file under src, or None."""
    room = path.split('/')[1]
    if target.startswith('roost/'):
        return None
    if target.split('/')[0] not in ROOMS or '..' in target:
        return f'"{target}" is not of the form "room/file.h"'
    if ROOMS.index(target.split('/')[0]) > ROOMS.index(room):
        return f'{room} includes "{target}", from a room below it'
    if target.split('/')[0] not in ONLY.get(room, ROOMS):
        return f'{room} includes "{target}"; it may include {" ".join(ONLY[room])} only'
    folder, subcommand = path.split('/')[2:-1], target.split('/')[1:-1]
    if room == 'cli' and target.startswith('cli/') and subcommand and subcommand != folder and (
            not folder or subcommand[0] not in SUBCOMMAND_USES.get(folder[0], [])):
        return f'"{target}" belongs to another subcommand'
    return None


def includes(top):
    for path, lines in files(top, ['src', 'include']):
        parts = path.split('/')
        if not path.endswith(('.c', '.h', '.S')):
            continue
        if parts[0] == 'src' and (len(parts) < 3 or parts[1] not in ROOMS):
            yield f'{path}: src/{parts[1]} is not a room; rooms are {" ".join(ROOMS)}'
            continue
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            problem = None
            if parts[0] == 'src' and match[1] == '"':
                problem = quoted_include_problem(path, match[2])
            elif parts[0] == 'include' and (match[1] == '"' or match[2].split('/')[0] in ROOMS) \
                    and not match[2].startswith('roost/'):
                problem = f'an installed header includes "{match[2]}"'
            if problem:
                yield f'{path}:{number}: {problem}'


def sizes(top):
    for path, lines in files(top, OURS):
        if path.endswith(CODE) and len(lines) >= MAX_LINES:
            yield f'{path}: {len(lines)} lines; one job a file, under {MAX_LINES} lines'


def documents(top):
    """Paths relative to top of README.md and the other pages, with their lines."""
    for path, lines in files(top, ['docs']):
        if path.endswith('.md'):
            yield path, lines
    for path in ('README.md', 'CONTRIBUTING.md', 'CHANGELOG.md'):
        if os.path.exists(os.path.join(top, path)):
            with open(os.path.join(top, path), encoding='utf-8') as f:
                yield path, f.read().splitlines()


def prose(lines):
    """Numbers and lines of a page outside of tables, and of drawings and commands."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.startswith('```'):
            fenced = not fenced
        elif not fenced and not line.startswith(('|', '    ')):
            yield number, line


def columns(top):
    for path, lines in documents(top):
        for number, line in prose(lines):
            if len(line) > MAX_COLUMNS:
                yield f'{path}:{number}: {len(line)} columns; at most {MAX_COLUMNS}'
    for path, lines in files(top, OURS):
        script = bool(lines) and re.match(r'#!.*\b(?:python3|bash|sh)\b', lines[0])
        in_c = path.endswith(('.c', '.h'))
        if not in_c and not path.endswith(('.S', '.py', '.sh')) and not script:
            continue
        for number, line in enumerate(lines, 1):
            if in_c:
                line = line.rstrip('\\ ')  # clang-format aligns the ends of a macro's lines
            width = 0 if in_c and '"' in line else len(line.expandtabs(8))
            if width > MAX_COLUMNS:
                yield f'{path}:{number}: {width} columns; at most {MAX_COLUMNS}'


def words(top):
    for path, lines in files(top, OURS):
        script = bool(lines) and lines[0].startswith('#!')
        if (path.endswith(CODE)
            or script) and not any('SPDX-License-Identifier: BSD-2-Clause' in s for s in lines[:2]):
            yield (
                f'{path}:1: the first line (after #!) is not SPDX-License-Identifier: BSD-2-Clause')
        for number, line in enumerate(lines, 1):
            if PLACES.search(line):
                yield (f'{path}:{number}: names a place that exists on one machine only: '
                       f'{line.strip()}')
            if OPEN.search(line) and not path.startswith('docs/'):
                yield f'{path}:{number}: leaves something open: {line.strip()}'



# Words that docs/glossary.md replaced, in the identifiers that had them: the new word, and a
# pattern of whole identifiers.
REPLACED = [
    ('kernel runtime', r'(?!libfabric)\w*fabric\w*'),
    ('hook, attach, detach', r'(?:roost|nic|runtime|verbs|rig|resp|cqe)_(?:\w+_)?place(?:_\w+)?'),
    ('local_call',
     r'place_(?:attr|result|begin|start|pu|done|free|make|finish|show|step|perform|replied|wake|'
     r'hand_over|run|on_in|on_out|on_region|off|acts|over|end|take)'),
    ('registered kernel, kernel version, active',
     r'served_(?:pu|count|broken|condemn)|standing_(?:close|lends|forget)|(?:roost_kernel|runtime|'
     r'port_reader)_stands'),
    ('bind, unbind, limits',
     r'(?:roost|runtime|nic)_\w*(?:lend|loan)|(?:num|first)_lent|lent_(?:qp|at)|lend(?:er|_\w+)'),
    ('kernel work request', r'nic_acts?|acts_(?:go|stop|leave|done|gone|fetches|wake|failed)'),
    ('pause, resume, continue', r'(?:\w+_)?go_on(?:_\w+)?'),
    ('remote_pu, detached, needs_input, deferred free',
     r'abroad|deaf|hungry|orphans?|(?:\w+_)?bury'),
    ('trapped, disabled, watchdog limits', r'\w*_struck|condemned|\w*patience\w*'),
    ('stalled, region_addr, parent',
     r'(?:is_)?excused|(?:mr|\w+_resolve)_spot|struct spot|home_of'),
    ('batch',
     r'(?:\w+_)?gathers(?:_since)?|req_gather|GATHER_(?:BEHIND|NS|BYTES)|UDP_GATHER|port(?:->|'
     r'\.)gather'),
    ('service poller, rx wake-up, masked, busy poll, yield',
     r'tenders?|\w+_eyes|eyes_\w+|blind(?:_\w+)?|stand(?:ing)?_by'),
    ('reclaim, record of a slot, socket of a slot',
     r'(?:\w+_)?seats?(?:_\w+)?|(?:pool|seat|find)_homes?|homed'),
    ('space, or port_buf (a room is a folder of the tree)',
     r'\w+_room(?:_\w+)?|room_\w+|\w+(?:\.|->)room|(?:\w+_t|bool|char|define|int|unsigned) room'),
]
# Words that no identifier of src and include has as one of its parts, and the folders where a word
# has another meaning: the buckets and slabs of the store have places.
REPLACED_PARTS = {
    'abroad': (), 'act': (), 'acts': (), 'apart': (), 'bequeath': (), 'blind': (), 'buried': (),
    'bury': (), 'company': (), 'complain': (), 'conclude': (), 'concluded': (), 'condemned': (),
    'deaf': (), 'eager': (), 'excused': (), 'eyes': (), 'fabric': (), 'gathered': (), 'gathers': (),
    'hear': (), 'heard': (), 'hears': (), 'held': (), 'here': (), 'hungry': (), 'lend': (),
    'lent': (), 'linger': (), 'loan': (), 'loans': (), 'lone': (), 'meet': (), 'news': (),
    'obtain': (), 'orphan': (), 'orphans': (), 'patience': (), 'place': ('src/kv/',), 'prompt': (),
    'rang': (), 'room': (), 'said': (), 'says': (), 'served': (), 'spot': (), 'spots': (),
    'standing': (), 'stands': (), 'stranger': (), 'struck': (), 'tender': (), 'understand': (),
    'unlend': (), 'vague': (), 'welcome': ()}
# Words that no identifier of tests, bench and examples has as one of its parts, and files that mean
# places of slabs, buckets and histories.
REPLACED_IN_TESTS = {
    'abroad': (), 'act': (), 'acts': (), 'blind': (), 'buried': (), 'bury': (), 'condemned': (),
    'deaf': (), 'excused': (), 'eyes': (), 'fabric': (), 'gathers': (), 'held': (), 'here': (),
    'hungry': (), 'lend': (), 'lent': (), 'linger': (), 'loan': (), 'loans': (), 'orphan': (),
    'orphans': (), 'patience': (), 'place': ('tests/kv/', 'bench/bench_kv_'), 'served': (),
    'spot': (), 'spots': (), 'standing': (), 'stands': (), 'struck': (), 'tender': (),
    'unlend': ()}
NO_NAMES = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)  # comments and strings
NAMES = [(word, re.compile(rf'\b(?:{pattern})\b', re.I)) for word, pattern in REPLACED]
ANY_NAME = re.compile(rf'\b(?:{"|".join(pattern for _, pattern in REPLACED)})\b', re.I)
NAMED = ('src', 'include', 'tests', 'bench', 'examples', 'scripts', 'completion')
NAMED_IN = ('.c', '.h', '.S', '.map', '.py', '.sh', '')  # '': scripts


def parts(top, folders, replaced):
    """Identifiers of C files of these folders that have a replaced word as a part."""
    part = re.compile(rf'(?<![a-z])(?:{"|".join(replaced)})(?![a-z])', re.I)
    for path, lines in files(top, folders):
        if not path.endswith(('.c', '.h')) or not part.search('\n'.join(lines)):
            continue
        text = NO_NAMES.sub(lambda match: '\n' * match[0].count('\n'), '\n'.join(lines))
        for number, line in enumerate(text.split('\n'), 1):
            for match in part.finditer(line):
                if not path.startswith(replaced[match[0].lower()] or '/'):
                    yield f'{path}:{number}: {match[0]}: docs/glossary.md replaced this word'


def names(top):
    yield from parts(top, ['src', 'include'], REPLACED_PARTS)
    yield from parts(top, ['tests', 'bench', 'examples'], REPLACED_IN_TESTS)
    for path, lines in files(top, NAMED):
        if os.path.splitext(path)[1] not in NAMED_IN or path == 'tests/structure/structure.py':
            continue
        lines = [os.path.basename(path), *lines]
        if not ANY_NAME.search('\n'.join(lines)):
            continue
        for number, line in enumerate(lines):
            for word, pattern in NAMES:
                match = pattern.search(line)
                if match:
                    yield f'{path}:{number}: {match[0]}: docs/glossary.md has another word: {word}'


FUNCTION = re.compile(r'[a-z][\w *]*?\b(\w+)\((?!\*)')
VERB = re.compile(r'/\*\s*\*?\s*(?!Errors\b|Atomics\b|Functions\b)[A-Z][a-z-]+s\b')


def manual(top):
    pages = '\n'.join('\n'.join(lines) for _, lines in files(top, ['docs/man']))
    for path, lines in files(top, ['include/roost']):
        for number, line in enumerate(lines, 1):
            match = FUNCTION.match(line)
            if not match or line.startswith(('return ', 'typedef ')):
                continue
            begin = end = number - 2
            while begin > 0 and '/*' not in lines[begin]:
                begin -= 1
            comment = '\n'.join(lines[begin:end + 1]) if lines[end].endswith('*/') else ''
            if not VERB.match(comment):
                yield (f'{path}:{number}: the comment before {match[1]}() does not begin with what '
                       'it does')
            exported = match[1].startswith('roost_') and 'static inline' not in line
            if exported and not re.search(rf'\b{match[1]}\b', pages):
                yield f'{path}:{number}: no page of docs/man names {match[1]}()'


GETENV = re.compile(r'\b(?:secure_)?getenv\s*\(')
# Uses only the C library, and no room.
STANDS_ALONE = 'src/cli/run/preload/'


def environment(top):
    for path, lines in files(top, ['src']):
        if path in ('src/base/sys.c', 'src/base/sys.h') or not path.endswith(('.c', '.h')):
            continue
        for number, line in enumerate(lines, 1):
            match = GETENV.search(line)
            if match and not (path.startswith(STANDS_ALONE) and match[0].startswith('secure_')):
                yield (
                    f'{path}:{number}: reads the environment: sys_env() of base/sys.h does, but in '
                    f'a set-user-ID program')


ROW = re.compile(r'\| ([A-Z]+-\d+) \|(?:[^|]*\|){2} ([^|]*) \| (\w+):(\w+) \|')


def test_texts(top, room=r'\w+'):
    """Returns the text of each tests/ROOM/test_NAME.c."""
    return {path: '\n'.join(lines) for path, lines in files(top, ['tests'])
            if re.fullmatch(rf'tests/{room}/test_\w+\.c', path)}


def runs(texts, name, test):
    """NAME, of tests/nic, or ROOM/NAME."""
    room, name = name.split('/') if '/' in name else ('nic', name)
    return re.search(rf'cmocka_unit_test(_\w+)?\({test}[,)]',
                     texts.get(f'tests/{room}/test_{name}.c', ''))


def calls(top, name, function):
    """ROOM/test_NAME.py has the function."""
    path = os.path.join(top, 'tests', name)
    if not os.path.exists(path):
        return False
    with open(path, encoding='utf-8') as f:
        return f'\ndef {function}(' in f.read()


def conformance(top):
    """Each row of docs/conformance.md has its file, and its test in tests/nic, and each RULE there
    its row."""
    doc = os.path.join(top, 'docs', 'conformance.md')
    if not os.path.exists(doc):
        return
    with open(doc, encoding='utf-8') as f:
        lines = f.read().splitlines()
    rows, ids = {}, set()
    for number, line in enumerate(lines, 1):
        match = ROW.fullmatch(line)
        if not match:
            if re.match(r'\| [A-Z]+-\d', line):
                yield (
                    f'docs/conformance.md:{number}: a row is | ID | rule | source | checked in | '
                    f'FILE:TEST |')
            continue
        if match[1] in ids:
            yield f'docs/conformance.md:{number}: {match[1]} is there twice'
        ids.add(match[1])
        rows.setdefault(match[3], {})[match[4]] = number
        if not os.path.isfile(os.path.join(top, match[2])):
            yield f'docs/conformance.md:{number}: there is no {match[2]}'
    texts = test_texts(top, 'nic')
    for name, tests in rows.items():
        for test, number in tests.items():
            if not runs(texts, name, test):
                yield f'docs/conformance.md:{number}: tests/nic/test_{name}.c runs no {test}'
    for path, text in texts.items():
        name = path[len('tests/nic/test_'):-len('.c')]
        for test in re.findall(r'^RULE\((\w+)\)', text, re.M):
            if test not in rows.get(name, {}):
                yield f'{path}: RULE({test}) has no row in docs/conformance.md'


QUOTE = re.compile(r'The file \[([^]]+)\]\(\.\./([^)]+)\):')


def quotes(top):
    for path, lines in files(top, ['docs']):
        for number, line in enumerate(lines, 1):
            match = QUOTE.fullmatch(line)
            if not match:
                continue
            if match[1] != match[2]:
                yield f'{path}:{number}: names {match[1]}, and links to {match[2]}'
                continue
            block = list(
                itertools.takewhile(lambda s: not s or s.startswith('    '), lines[number:]))
            quoted = '\n'.join(s[4:] for s in block).strip('\n')
            try:
                with open(os.path.join(top, match[2]), encoding='utf-8') as f:
                    text = f.read().strip('\n')
            except FileNotFoundError:
                yield f'{path}:{number}: there is no {match[2]}'
                continue
            if quoted != text:
                yield f'{path}:{number}: does not quote {match[2]} as it is'


def spans(text):
    """A text of the picture: from x, to x, from y, to y."""
    at = {name: float(text.get(name)) for name in ('x', 'y')}
    bold, small = text.get('class') == 'h', text.get('class') in ('s', 'n')
    width = len(text.text) * (12 if small else 14) * (0.72 if bold else 0.64)
    left = at['x'] - (width / 2 if text.get('text-anchor') == 'middle' else 0)
    return left, left + width, at['y'] - 12, at['y'] + 3


def segments(path):
    """The straight lines of a path of M, V and H, as x, x, y, y."""
    x = y = 0.0
    for command, numbers in re.findall(r'([MVH])([\d. ]+)', path.get('d')):
        to = [float(n) for n in numbers.split()]
        new = to if command == 'M' else [to[0], y] if command == 'H' else [x, to[0]]
        if command != 'M':
            yield min(x, new[0]), max(x, new[0]), min(y, new[1]), max(y, new[1])
        x, y = new


def picture(top):
    path = os.path.join(top, 'docs', 'architecture.svg')
    if not os.path.exists(path):
        return
    tree = [(e.tag.rpartition('}')[2], e) for e in xml.parse(path).iter()]
    boxes = [(x, x + w, y, y + h)
             for x, y, w, h in ([float(e.get(k, 0)) for k in ('x', 'y', 'width', 'height')]
                                for tag, e in tree if tag == 'rect')]
    lines = [line for tag, e in tree if tag == 'path' and e.get('class') for line in segments(e)]
    for text in (e for tag, e in tree if tag == 'text' and e.get('class') != 'n'):
        l, r, t, b = spans(text)
        around = [box for box in boxes if box[0] <= float(text.get('x')) <= box[1] and box[2] <= t
                  and b <= box[3]]
        box = min(around, key=lambda box: box[1] - box[0], default=(0, 0, 0, 0))
        if l < box[0] or r > box[1]:
            yield f'docs/architecture.svg: "{text.text}" runs over its box'
        if any(x0 < r and x1 > l and y0 < b and y1 > t for x0, x1, y0, y1 in lines):
            yield f'docs/architecture.svg: an arrow crosses "{text.text}"'


def version(top):
    texts = []
    for name, pattern in (('meson.build', r"^  version: '([^']+)'"),
                          ('debian/changelog', r'^roost \(([^)]+)\)')):
        try:
            with open(os.path.join(top, name), encoding='utf-8') as f:
                texts.append(re.search(pattern, f.read(), re.M))
        except FileNotFoundError:
            return
    if not all(texts) or texts[0][1] != texts[1][1]:
        yield 'debian/changelog: its first version is not that of meson.build'


# Scripts that a page runs: in a line of commands, or with arguments in backquotes.
COMMANDS = re.compile(r'(?:^ {4}(?:\w+=\$\()?|`)'
                      r'((?:tests|scripts|examples|bench)/[\w/.-]+\.(?:py|sh)) ', re.M)


def docs(top):
    """`function` (file.c), paths that begin with a folder of the tree, and scripts that are run."""
    pages = [os.path.join('docs', f) for f in sorted(os.listdir(os.path.join(top, 'docs')))
             if f.endswith('.md')] if os.path.isdir(os.path.join(top, 'docs')) else []
    sources = {}
    for folder, _, files in os.walk(os.path.join(top, 'src')):
        for f in files:
            sources.setdefault(f, []).append(os.path.join(folder, f))
    for page in pages + ['README.md', 'CONTRIBUTING.md']:
        if not os.path.exists(os.path.join(top, page)):
            continue
        with open(os.path.join(top, page), encoding='utf-8') as file:
            text = file.read()
        for name, where in re.findall(r'`(\w+)(?:\(\))?` \((\w+\.[ch])\)', text):
            if not any(re.search(rf'\b{name}\b', open(path, encoding='utf-8').read())
                       for path in sources.get(where, [])):
                yield f'{page}: there is no {name} in {where}'
        for path in re.findall(
                r'\b(?:src|include|tests|scripts|examples)/[\w/.-]*\w\.(?:[chS]|py|sh)\b', text):
            if 'NAME' not in path and not os.path.exists(os.path.join(top, path)):
                yield f'{page}: there is no {path}'
        for path in COMMANDS.findall(text):
            if not os.access(os.path.join(top, path), os.X_OK):
                yield f'{page}: {path} cannot be executed'
    yield from unlisted_records(top)


def unlisted_records(top):
    """The index has the title of each record, in the order of the records."""
    path = os.path.join(top, 'docs', 'decisions.md')
    if not os.path.exists(path):
        return
    with open(path, encoding='utf-8') as file:
        sections = re.split(r'(?m)^## ', file.read())[1:]
    for section in sections:
        page = re.search(r'\]\((decisions/[\w-]+\.md)\)', section)
        if not page:
            continue
        records = []
        if os.path.exists(os.path.join(top, 'docs', page[1])):
            with open(os.path.join(top, 'docs', page[1]), encoding='utf-8') as file:
                records = re.findall(r'(?m)^## (\d{4}-.*)$', file.read())
        listed = re.findall(r'(?m)^- (\d{4}-.*)$', section)
        if records != listed:
            other = [title for title in records + listed
                     if title not in records or title not in listed]
            yield f'docs/decisions.md: the records of {page[1]} differ: {other or "their order"}'


ORDERED = re.compile(r'memory_order_(?:acquire|release|acq_rel|seq_cst)'
                     r'|__ATOMIC_(?:ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)'
                     r'|\batomic_(?:load|store|exchange|fetch_|compare_exchange_)'
                     r'(?!\w*_explicit)\w*\(')


def cell_files(cell):
    """Returns the files that a cell of a table names. One without a folder is in the folder of the
    file before it."""
    found, folder = [], ''
    for name in re.findall(r'[\w/.-]*\w\.[ch]\b', cell):
        folder = os.path.dirname(name) or folder
        found.append(os.path.join(folder, os.path.basename(name)))
    return found


def order(top):
    """An access that orders nothing (relaxed) needs no row."""
    path = os.path.join(top, 'docs', 'architecture.md')
    if not os.path.exists(path):
        return
    with open(path, encoding='utf-8') as file:
        section = file.read().partition('\n## The order of memory\n')[2].partition('\n## ')[0]
    rows = [line.strip('|').split('|') for line in section.splitlines()
            if line.startswith('| ') and line.count('|') == 5][1:]
    named = {name for row in rows for cell in row[1:3] for name in cell_files(cell)}
    tests = {os.path.join('tests', name) for row in rows for name in cell_files(row[3])}
    for name in sorted(named | tests):
        if not os.path.exists(os.path.join(top, name)):
            yield f'docs/architecture.md: the order of memory: there is no {name}'
    for row in rows:
        if not cell_files(row[1]) or not cell_files(row[3]):
            yield f'docs/architecture.md: no file, or no stress test, for {row[0].strip()}'
    for name, lines in files(top, ['src']):
        if (name.endswith(('.c', '.h')) and not name.startswith('src/cli/')
                and name not in named and ORDERED.search('\n'.join(lines))):
            yield f'{name}: docs/architecture.md has no row for its order of memory'


def mutants(top):
    """Checks the texts of the table, because scripts/mutants runs rarely."""
    path = os.path.join(top, 'tests', 'nic', 'mutants.py')
    if not os.path.exists(path):
        return
    texts = test_texts(top)
    for who, name, old, new in runpy.run_path(path)['MUTANTS']:
        what = f'tests/nic/mutants.py: {who}, {name}, {" ".join(old.split())[:60]}'
        try:
            with open(os.path.join(top, name), encoding='utf-8') as f:
                times = f.read().count(old)
        except FileNotFoundError:
            times = 0
        if times != 1:
            yield f'{what}: is there {times} times'
        if old == new:
            yield f'{what}: breaks nothing'
        if who not in ('simulator', 'invariant') and not (
                calls(top, *who.split(':')) if '.py:' in who else runs(texts, *who.split(':'))):
            yield f'{what}: there is no such test'


MAX_SUBJECT = 72
SUBJECTS_SINCE = 1795860000  # 2026-11-28 10:00 UTC; commits written before keep their subjects


def subjects(top):
    if not os.path.exists(os.path.join(top, '.git')):
        return
    try:
        log = subprocess.run(['git', '-C', top, 'log', f'--since={SUBJECTS_SINCE}',
                              '--format=%at %h %s'], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return
    for written, commit, subject in (line.split(' ', 2) for line in log.splitlines()):
        if int(written) >= SUBJECTS_SINCE and len(subject) > MAX_SUBJECT:
            yield f'{commit}: a subject of {len(subject)} characters; at most {MAX_SUBJECT}'


RULES = {'includes': includes, 'sizes': sizes, 'columns': columns, 'words': words,
         'names': names, 'manual': manual, 'docs': docs, 'environment': environment,
         'conformance': conformance, 'mutants': mutants, 'order': order,
         'quotes': quotes, 'picture': picture, 'version': version, 'subjects': subjects}

# For the self-test: a file, its text, and the rules that it breaks.
SPDX_PY = '# SPDX-License-Identifier: BSD-2-Clause\n'
SPDX = '/* SPDX-License-Identifier: BSD-2-Clause */\n'
CASES = [
    ('src/nic/good.c', SPDX
     + '#include <stdio.h>\n#include "nic/nic.h"\n#include "base/list.h"\n#include "roost/wqe.h"\n',
     []),
    ('src/cli/good.c',
     SPDX + '#include "drive/drive.h"\n/* see https://example.com/home/x and a/work/b */\n', []),
    ('src/port/up.c', SPDX + '#include "nic/nic.h"\n', ['includes']),
    ('src/base/up.h', SPDX + '  #  include "packet/headers.h" // why\n', ['includes']),
    ('src/cli/perf/good.c', SPDX + '#include "cli/term.h"\n#include "cli/perf/perf.h"\n', []),
    ('src/cli/perf/other.c', SPDX + '#include "cli/node/node.h"\n', ['includes']),
    ('src/cli/shared.c', SPDX + '#include "cli/node/node.h"\n', ['includes']),
    ('src/cli/dots.c', SPDX + '#include "../nic/nic.h"\n', ['includes']),
    ('src/nic/bare.c', SPDX + '#include "nic.h"\n', ['includes']),
    ('src/other/room.c', SPDX, ['includes']),
    ('src/cm/good.c',
     SPDX + '#include "base/list.h"\n#include "packet/icrc.h"\n#include "cm/mad.h"\n', []),
    ('src/cm/impure.c', SPDX + '#include "nic/nic.h"\n', ['includes']),
    ('include/roost/bad.h', SPDX + '#include "nic/nic.h"\n', ['includes']),
    ('include/roost/bad2.h', SPDX + '#include <base/list.h>\n', ['includes']),
    ('include/roost/good.h', SPDX + '#include <infiniband/verbs.h>\n#include "roost/wqe.h"\n', []),
    ('src/nic/long.c', SPDX + '\n' * (MAX_LINES - 1), ['sizes']),
    ('src/nic/fits.c', SPDX + '\n' * (MAX_LINES - 2), []),
    ('scripts/wide.py', SPDX_PY + '#' * 101 + '\n', ['columns']),
    ('src/cm/wide.S', SPDX + '/* ' + 98 * 'x' + ' */\n', ['columns']),
    ('scripts/wide', '#!/bin/sh\n# SPDX-License-Identifier: BSD-2-Clause\n' + '\t' * 12 + 'word5\n',
     ['columns']),
    ('scripts/fits', '#!/bin/sh\n# SPDX-License-Identifier: BSD-2-Clause\n' + '\t' * 12 + 'word\n',
     []),
    ('docs/wide.md', 51 * 'a ' + '\n', ['columns']),
    ('CHANGELOG.md', 51 * 'a ' + '\n', ['columns']),
    ('docs/fits.md', 50 * 'a ' + '\n    ' + 51 * '| ' + '\n|' + 101 * ' ' + '|\n\n```\n'
     + 101 * '-' + '\n```\n', []),
    ('src/nic/bare-licence.c', 'int x;\n', ['words']),
    ('scripts/tool', '#!/bin/sh\n# SPDX-License-Identifier: BSD-2-Clause\n', []),
    ('scripts/bare', '#!/bin/sh\n', ['words']),
    ('bench/place.py',
     '# SPDX-License-Identifier: BSD-2-Clause\nDIR = "/home' + '/someone/roost"\n', ['words']),
    ('docs/place.md', 'cd /work' + '/main\n', ['words']),
    ('docs/conformance.md', '| X-1 | a rule | its source | src/nic/x.c | nothing:there |\n',
     ['docs', 'conformance']),
    ('docs/functions.md', '| `nic_poll` (nic.c) | a turn |\n', ['docs']),
    ('docs/decisions.md', '## Rooms\n\n[a](decisions/a.md)\n\n- 2026-01-01: a record\n', ['docs']),
    ('docs/architecture.md', '\n## The order of memory\n\n| a | b | c | d |\n|---|---|---|---|\n'
     '| a word | by reading | | |\n', ['order']),
    ('docs/none.md', 'ordinary text, (nic.c) and `nic_poll`\n', []),
    ('docs/conformance.md', '| X-1 | a rule without a test |\n', ['conformance']),
    ('docs/quote.md', 'The file [docs/quote.md](../docs/quote.md):\n\n    something else\n',
     ['quotes']),
    ('docs/quote.md', 'The file [docs/none](../docs/none):\n\n    text\n', ['quotes']),
    ('docs/quote.md', 'The file [a](../b):\n', ['quotes']),
    ('docs/architecture.svg',
     '<svg><rect width="90" height="40"/><text x="5" y="20">fits</text><path class="l" d="M80 '
     '5V30"/></svg>\n', []),
    ('docs/architecture.svg',
     '<svg><rect width="90" height="40"/><text x="5" y="20">too long by far</text></svg>\n',
     ['picture']),
    ('docs/architecture.svg',
     '<svg><rect width="90" height="40"/><text x="5" y="20">fits</text><path class="l" d="M20 '
     '5V30"/></svg>\n', ['picture']),
    ('tests/nic/mutants.py',
     SPDX_PY + "MUTANTS = [('simulator', 'tests/nic/mutants.py', 'MUT' 'ANTS = [', 'x')]\n", []),
    ('tests/nic/mutants.py',
     SPDX_PY + "MUTANTS = [('simulator', 'tests/nic/mutants.py', 'go' 'ne', 'x')]\n", ['mutants']),
    ('tests/nic/mutants.py',
     SPDX_PY + "MUTANTS = [('cli/a.py:b', 'tests/nic/mutants.py', 'MUT' 'ANTS', 'x')]\n",
     ['mutants']),
    ('tests/nic/mutants.py',
     SPDX_PY + "MUTANTS = [('a:b', 'tests/nic/mutants.py', 'MUT' 'ANTS', 'x')]\n", ['mutants']),
    ('src/nic/names.c', SPDX + 'struct nic_hook *hook; /* in place, libfabric */\n', []),
    ('src/nic/names.c', SPDX + 'int roost_qp_' 'place(void);\n', ['names']),
    ('src/pool/names.c', SPDX + 'bool pool_' 'bury(struct pool *p);\n', ['names']),
    ('src/pool/names.h', SPDX + 'struct sea' 't_home {\n', ['names']),
    ('src/nic/names.h', SPDX + 'struct port_' 'room *buf;\n', ['names']),
    ('tests/nic/names.c', SPDX + '#define ' 'ROOM 64 /* this room */\n', ['names']),
    ('tests/nic/other.c', SPDX + '/* of another room */\nint space;\n', []),
    ('include/roost/manual.h', SPDX + '/*\n * Returns x.\n * Any thread.\n */\nint x(void);\n',
     []),
    ('include/roost/manual.h', SPDX + '/* NULL: ENOMEM. */\nint *x(void);\n', ['manual']),
    ('include/roost/manual.h', SPDX + '/* Returns x. */\n\nstatic inline int x(void)\n',
     ['manual']),
    ('include/roost/pages.h', SPDX + '/* Returns x. */\nint roost_x(void);\n', ['manual']),
    ('include/roost/names.h', SPDX + 'ROOST_KERNEL_' 'STANDS,\n', ['names']),
    ('src/nic/parts.c', SPDX + 'int held_' 'back; /* held */ char *s = "held";\n', ['names']),
    ('src/kv/parts.c', SPDX + 'int place_' 'of; /* held */ char *s = "held";\n', []),
    ('src/nic/parts.h', SPDX + 'int place_' 'of;\n', ['names']),
    ('src/kv/parts.h', SPDX + 'size_t *room' '; /* room */\n', ['names']),
    ('tests/nic/parts.c', SPDX + 'int calls_' 'served; /* served */\n', ['names']),
    ('tests/kv/parts.c', SPDX + 'int place_' 'of; /* served */\n', []),
    ('bench/parts.h', SPDX + 'int place_' 'of;\n', ['names']),
    ('src/cm/env.c', SPDX + 'x = getenv("ROOST_PORT");\n', ['environment']),
    ('src/cm/env2.c', SPDX + 'x = secure_getenv ("ROOST_PORT");\n', ['environment']),
    ('src/base/sys.c', SPDX + 'return secure_getenv(name);\n', []),
    ('src/cli/run/preload/view.c', SPDX + 'return secure_getenv(name);\n', []),
    ('src/cli/run/preload/other.c', SPDX + 'return getenv(name);\n', ['environment']),
    ('src/cm/long.c', SPDX + '/*\n * ' + 98 * 'x' + '\n */\n', ['columns']),
    ('src/cm/string.c', SPDX + 'x = "' + 98 * 'x' + '";\n', []),
    ('src/cm/open.c', SPDX + '/* TO' + 'DO: later */\n', ['words']),
]


def self_test():
    bad = 0
    for path, text, expected in CASES:
        with tempfile.TemporaryDirectory() as top:
            os.makedirs(os.path.join(top, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(top, path), 'w', encoding='utf-8') as f:
                f.write(text)
            got = [name for name, rule in RULES.items() if list(rule(top))]
            if got != expected:
                print(f'{path}: breaks {got}, should break {expected}')
                bad += 1
    with tempfile.TemporaryDirectory() as top:
        git = ['git', '-C', top, '-c', 'user.name=a', '-c', 'user.email=a@example.com']
        for length in (MAX_SUBJECT, MAX_SUBJECT + 1) if shutil.which('git') else ():
            date = f'{SUBJECTS_SINCE + 1} +0000'
            env = {**os.environ, 'GIT_CONFIG_GLOBAL': '/dev/null', 'GIT_AUTHOR_DATE': date,
                   'GIT_COMMITTER_DATE': date}
            subprocess.run([*git[:3], 'init', '-q'], check=True, env=env)
            subprocess.run([*git, 'commit', '-q', '--allow-empty', '-m', length * 'x'], check=True,
                           env=env)
            if bool(list(subjects(top))) != (length > MAX_SUBJECT):
                print(f'a subject of {length} characters')
                bad += 1
    return bad


def main():
    if sys.argv[1:] == ['self-test']:
        sys.exit(1 if self_test() else 0)
    if len(sys.argv) != 3 or sys.argv[1] not in RULES:
        sys.exit(__doc__)
    problems = list(RULES[sys.argv[1]](sys.argv[2]))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
