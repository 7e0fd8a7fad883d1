#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost chain`: examples are accepted and run, faulty programs are refused with line and reason,
images keep programs."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from cli import LIMIT, ROOST, check, finish, one_line_error, run

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
EXAMPLES = os.path.join(TOP, 'examples', 'chains')
FAULTY = os.path.join(TOP, 'tests', 'chainasm', 'faulty')
CLASSES = ['address', 'loop', 'rewrite', 'wait']

# What `roost chain run` prints at the end, among other lines.
RESULTS = {
    'call': ['result = 117'],
    'if': ['answer = 42'],
    'if_macro': ['equal = 1', 'below = 1', 'both = 2'],
    'list': ['visited = 2', 'result = 222'],
    'lookup': ['value = 0x2e6f77742e6f7774', 'reply_end = operand(1002)'],
    'rule110': ['count = operand(10)'],
    'switch': ['result = 2'],
    'turing': ['steps = 6', 'state = &a'],
    'while': ['i = operand(100)', 'sum = operand(5050)'],
    'while_break': ['steps = 3', 'found = operand(30)'],
}


def example(name):
    return os.path.join(EXAMPLES, name + '.chain')


def chain(*args, text=None):
    if text is None:
        return run('chain', *args)
    return subprocess.run([ROOST, 'chain', *args], input=text, capture_output=True, text=True,
                          timeout=LIMIT, check=False)


def faulty_programs():
    files = sorted(glob.glob(os.path.join(FAULTY, '*.chain')))
    for kind in CLASSES:
        check(f'ten programs of the class {kind}',
              sum(os.path.basename(f).startswith(kind + '_') for f in files) >= 10)
    for file in files:
        with open(file, encoding='ascii') as text:
            wanted = next(n for n, line in enumerate(text, 1) if '#!' in line)
        r = chain('check', file)
        found = re.fullmatch(re.escape(file) + r':(\d+): (\w+): .+\n', r.stdout)
        check(os.path.basename(file), r.returncode == 1 and not r.stderr and found is not None
              and (int(found.group(1)), found.group(2))
              == (wanted, os.path.basename(file).split('_')[0]), r)


def good_programs(folder):
    names = {os.path.basename(f).removesuffix('.chain')
             for f in glob.glob(os.path.join(EXAMPLES, '*.chain'))}
    check('each example has its results here', names == set(RESULTS) | {'forever'})
    r = chain('check', *map(example, sorted(names)))
    check('the examples are accepted', r.returncode == 0 and not r.stdout + r.stderr, r)
    for name in sorted(names):
        image, text, again = (os.path.join(folder, name + end)
                              for end in ('.image', '.text', '.again'))
        steps = [chain('asm', example(name), '--output', image),
                 chain('disasm', image, '--output', text), chain('asm', text, '--output', again)]
        check(f'{name} becomes an image and a text',
              not any(r.returncode or r.stderr for r in steps), steps)
        check(f'{name}: its text is that of its image',
              chain('disasm', again).stdout == open(text, encoding='ascii').read())
        for file in (example(name), image) if name in RESULTS else ():
            r = chain('run', file)
            check(f'{os.path.basename(file)} runs', r.returncode == 0 and not r.stderr
                  and set(RESULTS[name]) <= set(r.stdout.split('\n')), r)


def large_programs():
    """A program that is too large is not accepted silently; a full ring takes no long time."""
    queue = 'queue q{} managed start depth=32768\n' + '\tnop\n' * 32768
    r = chain('check', '-', text=''.join(queue.format(i) for i in range(3)))
    check('a program that is too large', r.returncode == 1 and not r.stderr
          and r.stdout.count('\n') == 1 and 'too large' in r.stdout, r)
    r = chain('check', '-', text='region data\nx: word 0\n'
              + queue.format(0).replace('\tnop\n', '\tadd x, 1\n'))
    check('a full ring', r.returncode == 0 and not r.stdout + r.stderr, r)


def trace_and_steps():
    r = chain('run', '--trace', example('if'))
    lines = r.stdout.split('\n')
    check('a trace has the WQEs and their effects',
          r.returncode == 0 and len(lines) > 3 and 'write answer, yes, 8' in lines[2]
          and lines[2].endswith('answer: 0 -> 42') and 'then: 1 -> operand(7)' in lines[0], r)
    r = chain('run', '--step', example('if'), text='s\np then\nc\n')
    check('steps and a word',
          r.returncode == 0 and 'then = 1\n' in r.stdout and 'answer = 42\n' in r.stdout, r)
    r = chain('run', '--break', 'then', example('if'), text='p answer\nq\n')
    check('a break', 'answer = 42' in r.stdout, r)
    r = chain('run', '--break', 'more', example('while'), text='p sum\nc\np sum\nc\np sum\nq\n')
    check('a break in a loop stops each turn', r.returncode == 0 and re.findall(
        r'^> sum = operand\((\d+)\)$', r.stdout, re.M) == ['1', '3', '6']
          and r.stdout.endswith('sum = operand(6)\n'), r)
    for steps in (1, 5, 9):
        r = chain('run', '--step', example('forever'), text='s\n' * (steps - 1) + 'q\n')
        check(f'q after {steps} steps shows the memory of that moment',
              r.returncode == 0 and r.stdout.endswith(f'ticks = {(steps + 3) // 4}\n'), r)


REWRITTEN = ('region data\nto: word &x\nx: word 0\ny: operand 7\n'
             'queue server receives=2 managed_recv peer=client\n\trecv y, 8\n\trecv y, 8\n'
             'queue client\n\tsend y, 8\n\tsend y, 8\n')
GOOD = {
    # a queue that waits for a time, in a loop without end and once
    'time':
    ('region data\nticks: word 0\nqueue clock managed depth=4 start=4\n\twait_time 1000000\n\tadd '
     'ticks, 1\n\tforever\n'
     'queue once managed start\n\twait_until 1\n\tadd ticks, 1\n'),
    # a receive that is rewritten behind the message that it took, and enabled again
    'receive':
    ('region data\nto: word &x\nx: word 0\ny: operand 7\n'
     'queue server managed depth=4 start=4 receives=1 managed_recv start_recv=1 peer=client\n'
     '\trecv y, 8\n\tnop\n'
     'queue loop managed depth=4 start=4\n\twait server.receives\n\twrite server.receives[0] + 16, '
     'to, 8\n'
     '\trecv_enable server\n\tenable loop\n'
     'queue client\n\tsend y, 8\n\tsend y, 8\n'),
    # third queues enable a rewritten receive: behind a WAIT for the writer, enabled by it, and one
    # that does not reach the receive
    'third_waits':
    (REWRITTEN + 'queue main managed start\n\twrite server.receives[1] + 16, to, 8 {signaled}\n'
     'queue third managed start\n\twait main.sends\n\trecv_enable server, 2\n'),
    'third_enabled':
    (REWRITTEN + 'queue main managed start\n\twrite server.receives[1] + 16, to, 8\n'
     '\tenable second\nqueue second managed\n\tenable third\n'
     'queue third managed\n\trecv_enable server, 2\n'),
    'third_below':
    (REWRITTEN + 'queue main managed start\n\twrite server.receives[1] + 16, to, 8\n'
     '\trecv_enable server\nqueue third managed start\n\trecv_enable server\n'),
    # the first turn of a receive is enabled by a third queue, and the message has come
    'third_first':
    (REWRITTEN + 'queue main managed start\n\twait server.receives, 1\n'
     '\twrite server.receives[0] + 16, to, 8\n\trecv_enable server\n'
     'queue third managed start\n\trecv_enable server\n'),
}


def good_texts():
    for name, text in GOOD.items():
        r = chain('check', '-', text=text)
        check(f'{name}: accepted', r.returncode == 0 and not r.stdout + r.stderr, r)
        image = chain('disasm', '-', text=text).stdout
        check(f'{name}: the text of its image is accepted too',
              chain('check', '-', text=image).returncode == 0, r)
    r = chain('run', '--show', 'ticks', '-', text=GOOD['time'].replace('\tforever\n', ''))
    check('WAITs for a time end', r.returncode == 0 and 'ticks = 2' in r.stdout, r)


def costs():
    """Copies, atomics, WAITs and ENABLEs of each construct, as docs/chains.md has them."""
    r = chain('costs')
    for row in ('if x == constant 1 1 0 2 1 copy, 1 atomic, 3 WAIT or ENABLE',
                'if x == y 2 1 0 3 -',
                'if x <= constant, if x >= constant 1 2 0 3 -',
                'if x <= y, if x >= y 3 2 0 5 -',
                'if x == constant, else 3 1 0 4 -',
                'if x == constant of 64 bits 4 2 0 6 -',
                'switch with 3 cases 7 3 0 10 -',
                'turn of an unrolled loop with a break 1 1 1 3 1 copy, 1 atomic, 3 WAIT or ENABLE',
                'turn of a recycled loop 1 1 1 3 3 copies, 2 atomics, 4 WAIT or ENABLE',
                'call with 2 arguments 3 0 2 5 -'):
        check(f'costs: {row}', row in [' '.join(line.split()) for line in r.stdout.splitlines()],
              r)
    check('costs: nothing else', r.returncode == 0 and len(r.stdout.splitlines()) == 11, r)
    one_line_error('costs of a file', chain('costs', example('if')), 2, 'unexpected')


def limits():
    """1,000 WQEs a second: without the limit there would be millions. It holds for the NIC, not
    only for the checker."""
    r = chain('run', '--time', '300ms', example('forever'))
    found = re.search(r'^ticks = (?:operand\()?(\d+)', r.stdout, re.M)
    check('a loop without end ends by --time, and keeps its limit',
          r.returncode == 0 and found and 0 < int(found.group(1)) < 100000, r)


def top():
    """A running chain is shown, with its queue and its state."""
    with subprocess.Popen([ROOST, 'chain', 'run', '--time', '100s', example('forever')],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as loop:
        try:
            until = time.monotonic() + LIMIT
            seen = []
            while not seen and loop.poll() is None and time.monotonic() < until:
                r = chain('--count', '1', '--json', 'top')
                seen = [line for line in r.stdout.splitlines() if f'"pid": {loop.pid}' in line
                        or f'"pid":{loop.pid}' in line]
            check('top shows the loop', bool(seen), r)
            for line in seen:
                json.loads(line)
        finally:
            loop.kill()


def refused(folder):
    bad = os.path.join(folder, 'bad.chain')
    for text, words in (('queue main\n\twrite nowhere, nowhere, 8\n', (':2:', 'nowhere')),
                        ('queue main\n\tjump 3\n', (':2:', 'jump')),
                        ('region data\nx:\tword\n', (':2:',)),
                        ('queue main depth=7000000\n', (':1:', '7000000')),
                        ('', ('no queue',)), ('# nothing\n\n', ('no queue',)),
                        ('region data\nx:\tword 1\n', ('no queue',)),
                        ('queue main\n\tnop\n\0', (':3:', 'no text')),
                        ('\0\1\2queue main\n\tnop\n', (':1:', 'no text')),
                        ('queue main\n\tnop \033[31mred\n', (':2:', "'?[31mred'")),
                        ('a' * 10_000_000, (':1:', '511 characters')),
                        ('const n = 18446744073709551616\n', (':1:', '64 bits')),
                        ('region data\nx:\toperand 0x1000000000000\n', (':2:', '48 bits')),
                        ('region data\nx:\tspace -1\n', (':2:', 'larger')),
                        ('region data\nx:\tword 1\nqueue main\n\twrite x, x, 1 << 32\n',
                         (':4:', '2^32')),
                        ('queue main managed start=1 << 32\n\tnop\n', (':1:', '4294967296')),
                        ('queue main\nx:\tnop\nx:\tnop\n', (':3:', 'x')),
                        ('queue main\n\twait none.sends\n', (':2:', 'none')),
                        ('region data\nx:\tword 1\nqueue main\n\twrite main[9], x, 8\n',
                         (':4:', '9')),
                        ('region data\nx:\tword 1\nqueue main\n\tif x == 1:\n\tnop\n',
                         (':5:', 'end'))):
        with open(bad, 'w', encoding='ascii') as file:
            file.write(text)
        for verb in ('asm', 'check', 'run'):
            one_line_error(f'{verb} of {text[:60]!r}', chain(verb, bad), 1, *words)
    with open(bad, 'w', encoding='ascii') as file:
        file.write('region data\nx:\tword 1\nqueue main receives=2 recv_sges=1 managed start=1\n'
                   '\trecv x, 8\n\trecv raw op(nop), 16\n\tnop\n')
    one_line_error('a receive of 16 pieces, whose slot has fewer', chain('run', bad), 1, 'line 5',
                   'recv_sges=1')
    image = os.path.join(folder, 'list.image')
    whole = open(image, 'rb').read()
    for n in (7, 8, 100, len(whole) // 2, len(whole) - 1):
        with open(bad, 'wb') as file:
            file.write(whole[:n])
        one_line_error(f'an image of {n} bytes', chain('run', bad), 1, 'bad.chain')
    one_line_error('no file', chain('check', os.path.join(folder, 'none')), 1, 'none')
    one_line_error('a folder', chain('check', folder), 1, 'directory')
    with open(bad, 'wb') as file:
        file.truncate(33 << 20)
    one_line_error('a large file', chain('check', bad), 1, '32 MiB')
    one_line_error('no verb', chain('jump', bad), 2, 'jump')
    one_line_error('a second label that is not there',
                   chain('run', '--break', 'then', '--show', 'there', example('if')), 2, 'there')
    one_line_error('a label that is not there', chain('run', '--break', 'there', example('if')), 2,
                   'there')


with tempfile.TemporaryDirectory(prefix='roost-chain-') as scratch:
    faulty_programs()
    good_programs(scratch)
    good_texts()
    large_programs()
    trace_and_steps()
    costs()
    limits()
    top()
    refused(scratch)
finish()
