#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Random chains on the NIC and in the model, which is written after docs/chains.md and shares no
source file with the NIC.

usage: test_model.py ROOST MODEL [SEED [PROGRAMS]]

Both execute the same text; the words of its memory have to be the same at the end, and so has the
failure of a queue. A program rewrites fields of its own later WQEs: operands, values of
comparisons, addresses, op-codes. A quarter of the programs run on a queue pair that is connected to
another one of the same NIC; there a WAIT is behind each WQE, and SENDs fill words by receives.
test_far.c has two NICs and a link that loses and repeats packets.
"""
import os
import random
import subprocess
import sys
import tempfile

ROOST, MODEL = sys.argv[1:3]
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 4791
PROGRAMS = int(sys.argv[4]) if len(sys.argv) > 4 else 100
LIMIT = 60  # seconds

WORDS = 8
KEYS = 4
CALCS = ['add', 'max', 'min', 'max_signed', 'min_signed', 'and', 'or', 'xor']
SPECIAL = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 2**48 - 1]


def number(rng):
    return rng.choice(SPECIAL) if rng.random() < 0.3 else rng.getrandbits(
        rng.choice([4, 16, 48, 64]))


def word(rng):
    return f'w{rng.randrange(WORDS)}'


def pointer(rng, wild):
    """A word with the address of a word; seldom with another value."""
    return 'nowhere' if rng.random() < wild else f'p{rng.randrange(WORDS)}'


def plain(rng):
    """A WQE on words of data."""
    kind = rng.choice(['write', 'read', 'calc', 'calc', 'cas', 'nop', 'key'])
    if kind in ('write', 'read'):
        n = rng.choice([1, 2, 4, 8, 8, 8, 16])
        first, second = (f'w{rng.randrange(WORDS - 1)}' for _ in range(2))
        return f'{kind} {first}, {second}, {n}'
    if kind == 'calc':
        return f'{rng.choice(CALCS)} {word(rng)}, {number(rng)}'
    if kind == 'cas':
        return f'cas {word(rng)}, {number(rng)}, {number(rng)}'
    return f'add k{rng.randrange(KEYS)}, operand({rng.randrange(4)})' if kind == 'key' else 'nop'


def rewrite(rng, label, target, wild):
    """A WQE that rewrites a field of a later one."""
    op = target.split()[0]
    if op in ('write', 'read'):
        return f'write {label}.{rng.choice(["raddr", "addr"])}, {pointer(rng, wild)}, 8'
    if op == 'cas':
        return f'write {label}.{rng.choice(["compare", "operand"])}, {word(rng)}, 8'
    if op == 'nop':
        return f'add {label}, 0'
    return f'write {label}.operand, {"k" if " k" in target else "w"}{rng.randrange(KEYS)}, 8'


def conditional(rng):
    """Compares a word that has an operand of 48 bits. Seldom it compares a word of data, which has
    other bits, and the WQE may become any op-code."""
    compared = word(rng) if rng.random() < 0.03 else f'k{rng.randrange(KEYS)}'
    return f'if {compared} {rng.choice(["==", "<=", ">="])} {rng.randrange(12)}: {plain_write(rng)}'


def plain_write(rng):
    return f'write {word(rng)}, {word(rng)}, 8'


def body(rng, wqes, wild):
    lines = []
    for i in range(wqes):
        target = plain(rng)
        if rng.random() < 0.15:
            lines.append('\t' + conditional(rng))
        elif rng.random() < 0.4:
            lines.append('\t' + rewrite(rng, f'l{i}', target, wild))
            lines += ['\t' + plain(rng) for _ in range(rng.randrange(3))]
            lines.append(f'l{i}:\t{target}')
        else:
            lines.append('\t' + target)
    return lines


def program(rng):
    wild = 0.1 if rng.random() < 0.2 else 0
    lines = ['region data']
    lines += [f'w{i}:\t' + (f'word {number(rng)}' if rng.random() < 0.5
                            else f'operand {rng.randrange(12)}') for i in range(WORDS)]
    lines += [f'k{i}:\toperand {rng.randrange(12)}' for i in range(KEYS)]
    lines += ['count:\tword 0', '', 'region pointers']
    lines += [f'p{i}:\tword &w{rng.randrange(WORDS - 1)}' for i in range(WORDS)]
    lines += ['nowhere:\tword 64', '']
    if rng.random() < 0.5:
        return '\n'.join(lines + ['queue main managed depth=256 start']
                         + body(rng, rng.randrange(1, 40), wild)) + '\n'
    turns = rng.randrange(1, 9)
    loop = ['queue turns managed depth=256 start=256'] + body(rng, rng.randrange(1, 20), wild)
    return '\n'.join(lines + loop + ['\tadd count, operand(1)', f'\tuntil count >= {turns}']) + '\n'


def remote_program(rng):
    """A program whose queue is connected to another one. There a WQE is complete when its answer
    has come."""
    lines = ['region data']
    lines += [f'w{i}:\t' + (f'word {number(rng)}' if rng.random() < 0.5
                            else f'operand {rng.randrange(12)}') for i in range(WORDS)]
    lines += [f'k{i}:\toperand {rng.randrange(12)}' for i in range(KEYS)]
    lines += ['', 'region pointers'] + [f'p{i}:\tword &w{rng.randrange(WORDS - 1)}'
                                        for i in range(WORDS)]
    received = [word(rng) for _ in range(rng.randrange(1, 6))]
    lines += (['', f'queue other receives={len(received)} peer=main']
              + [f'\trecv {w}, 8' for w in received])
    lines += ['', 'queue main managed depth=256 start peer=other']
    for i in range(rng.randrange(1, 30)):
        target = plain(rng)
        while target.split()[0] in CALCS[1:]:  # they need the consent of both ends
            target = plain(rng)
        if rng.random() < 0.4:
            lines.append('\t' + rewrite(rng, f'l{i}', target, 0) + ' {signaled}\n\twait main.sends')
        elif received and rng.random() < 0.3:
            received.pop()
            lines.append(f'\tsend {word(rng)}, 8 {{signaled}}\n\twait main.sends')
        lines.append(f'l{i}:\t{target} {{signaled}}\n\twait main.sends')
    return '\n'.join(lines) + '\n'


def execute(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT, check=False)


def main():
    failed, failures_seen, compared = 0, 0, 0
    with tempfile.TemporaryDirectory(prefix='roost-model-') as folder:
        file = os.path.join(folder, 'random.chain')
        for i in range(PROGRAMS):
            rng = random.Random(SEED * 1000003 + i)
            text = remote_program(rng) if i % 4 == 3 else program(rng)
            with open(file, 'w', encoding='ascii') as out:
                out.write(text)
            model, nic = execute([MODEL, file]), execute([ROOST, 'chain', 'run', file])
            if model.returncode == 3:
                continue
            compared += 1
            failures_seen += model.returncode == 1
            if (model.returncode, model.stdout) != (nic.returncode,
                                                    nic.stdout) or model.returncode not in (0, 1):
                failed += 1
                print(f'FAILED: seed {SEED}, program {i}\n{text}\n--- model {model.returncode}\n'
                      f'{model.stdout}{model.stderr}'
                      f'--- NIC {nic.returncode}\n{nic.stdout}{nic.stderr}', flush=True)
    print(f'{compared} of {PROGRAMS} programs compared, {failures_seen} with a queue that failed, '
          f'{failed} differ (seed {SEED})')
    sys.exit(1 if failed or compared < PROGRAMS // 2 else 0)


main()
