#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Asks the shells for their completions of roost: the commands, each option that a command's --help
names, the values of options that have a list of them, operands, files, programs.

Arguments: ROOST SHELL. The exit status is 77 if the shell is not installed; with
ROOST_INTEROP=required in the environment it is then 1.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from cli import ROOST, check, finish, one_line_error, run, skip

SHELL = sys.argv[2]
MARK = '-- end --'

# Each script completes the lines of a file, one after the other, and prints the candidates and a
# mark.
BASH = r'''
source /dev/stdin <<<"$("$1" completion bash)"
compopt() { :; } # outside of a real completion it only complains
while IFS= read -r line; do
	COMP_WORDS=()
	for word in $line; do
		while [[ $word == *=* && $word == --* ]]; do
			COMP_WORDS+=("${word%%=*}" =)
			word=${word#*=}
		done
		[[ $word ]] && COMP_WORDS+=("$word")
	done
	[[ $line == *' ' ]] && COMP_WORDS+=('')
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_roost
	printf '%s\n' "${COMPREPLY[@]}" "$3"
done <"$2"
'''

FISH = r'''
$argv[1] completion fish | source
while read -l line
	complete -C $line | string replace -r '\t.*' ''
	echo $argv[3]
end <$argv[2]
'''

# zsh completes only in its line editor, so it gets a terminal; the candidates go to a file.
ZSH = (r'''
zmodload zsh/zpty
zpty shell zsh -f -i
{
	print -r -- "PS1= ROOST=${(q)1} OUT=${(q)4}"
	cat <<'INNER'
autoload -Uz compinit && compinit -D -u
eval "$($ROOST completion zsh)"
compadd() {
	local -a hits
	if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
		builtin compadd "$@"
		return
	fi
	builtin compadd -A hits "$@"
	(( $#hits )) && print -rl -- $hits >>$OUT
	builtin compadd "$@" # its status decides what else is tried
}
answer() {
	unset 'compstate[vared]'
	_main_complete
	compstate[insert]= compstate[list]=
	print -r -- $END >>$OUT
}
zle -C answer complete-word answer
bindkey '^I' answer
bindkey '^U' kill-whole-line
zstyle ':completion:*' completer _complete
INNER
	print -r -- "END=${(qq)3}; : >\$OUT.ready"
} >$4.start
zpty -w shell "source $4.start"
until [[ -e $4.ready ]]; do zpty -r -t shell junk; sleep 0.02; done
answered=0
while IFS= read -r line; do
	zpty -n -w shell "$line"$'\t'
	((++answered))
	until (( $(grep -c -x -e "$3" $4) >= answered )); do zpty -r -t shell junk; sleep 0.01; done
	zpty -n -w shell $'\x15'
done <$2
zpty -d shell
''')


def ask(lines):
    """Returns {line: [candidates]}."""
    with tempfile.TemporaryDirectory() as d:
        asked, script, answers = (os.path.join(d, name) for name in ('asked', 'script', 'answers'))
        with open(asked, 'w', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')
        with open(script, 'w', encoding='utf-8') as f:
            f.write({'bash': BASH, 'zsh': ZSH, 'fish': FISH}[SHELL])
        here = os.path.join(d, 'here')
        os.makedirs(os.path.join(here, 'bin'))
        os.makedirs(os.path.join(here, 'run-folder'))
        open(os.path.join(here, 'run-file'), 'w', encoding='utf-8').close()
        open(answers, 'w', encoding='utf-8').close()
        program = os.path.join(here, 'bin', 'stock-rdma-program')
        with open(program, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\n')
        os.chmod(program, 0o755)
        roost = os.path.join(here, 'bin', 'roost')
        os.symlink(os.path.abspath(ROOST), roost)
        r = subprocess.run(
            [SHELL, *{'bash': ['--norc'], 'zsh': ['-f'], 'fish': ['--no-config']}[SHELL], script,
             roost, asked, MARK, answers], cwd=here, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=200, check=False,
            env={'PATH': f'{here}/bin:/usr/bin:/bin', 'HOME': d, 'TERM': 'dumb',
                 'LC_ALL': 'C.UTF-8'})
        with open(answers, encoding='utf-8') as f:
            text = f.read() if SHELL == 'zsh' else r.stdout
    got = [part.split('\n') for part in text.split(MARK + '\n')][:-1]
    check('the shell answers each question', len(got) == len(lines) and not r.stderr, r)
    # fish repeats the option in front of a value. A blank, = or / at the end shows how the line
    # continues.
    return {line: sorted({re.sub('^--[a-z-]+=', '', w).rstrip(' =/') for w in words if w})
            for line, words in zip(lines, got)}


def help_of(*words):
    return run(*words, '--help').stdout


for what, words in (('no shell', []), ('a shell that is not known', ['csh']),
                    ('two', ['bash', 'zsh'])):
    one_line_error(what, run('completion', *words), 2, 'bash')
if not shutil.which(SHELL):
    skip(f'no {SHELL}: scripts/setup check installs it')

commands = re.findall(r'^  ([a-z]+)  ', help_of().split('commands:')[1].split('addresses:')[0],
                      re.M)
check('commands in the help', len(commands) >= 11 and 'completion' in commands)
options = {c: sorted(re.findall(r'^  (?:-\w,|   ) (--[a-z-]+)', help_of(c), re.M))
           for c in commands}

EXPECTED = {
    'roost perf ': ['atomic', 'read', 'rpc', 'send', 'write'],
    'roost perf w': ['write'],
    'roost perf --size 64 --json w': ['write'],
    'roost perf write --lat ': ['completion', 'execute', 'firstbyte', 'pingpong'],
    'roost perf write --lat=p': ['pingpong'],
    'roost perf write -k ': ['echo', 'get', 'hll', 'traversal'],
    'roost perf write --no-p': ['--no-pin'],
    'roost perf write --size ': [],
    'roost devices --port ': ['host:', 'shm:', 'udp:'],
    'roost devices -p s': ['shm:'],
    'roost kernel re': ['replace'],
    'roost kernel load run-': ['run-file', 'run-folder'],
    'roost pcap run-': ['run-file', 'run-folder'],
    'roost pcap --mtu 1024 run-fi': ['run-file'],
    'roost demo --keep run-': ['run-folder'],
    'roost demo --file run-fi': ['run-file'],
    'roost run stock-rdma-p': ['stock-rdma-program'],
    'roost run --port udp -- stock-rdma-p': ['stock-rdma-program'],
    'roost run -- stock-rdma-program run-fi': ['run-file'],
    'roost completion ': ['bash', 'fish', 'zsh'],
    'roost help ker': ['kernel'],
}
lines = ['roost ', *(f'roost {c} --' for c in commands), *EXPECTED]
offered = ask(lines)
check('the commands', set(commands) <= set(offered.get('roost ', ())))
for c in commands:
    got = offered.get(f'roost {c} --')
    if got != options[c]:
        check(f'{SHELL}: the options of {c} are {options[c]}, offered {got}', False)
for line, words in EXPECTED.items():
    if offered.get(line) != words:
        check(f'{SHELL}: "{line}" is completed by {words}, offered {offered.get(line)}', False)
finish()
