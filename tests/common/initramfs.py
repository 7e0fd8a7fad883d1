# SPDX-License-Identifier: BSD-2-Clause
"""The parts of a guest's image: a kernel package, unpacked but not installed, and an initial file
system."""
import hashlib
import os
import re
import shutil
import subprocess

from debian import Missing

INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'init')
# Debian packages install programs here too. A user's PATH may lack sbin.
PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])
# Programs must load the distribution's libraries, not those of LD_LIBRARY_PATH in a test run.
ENV = {'PATH': PATH, 'LC_ALL': 'C', 'HOME': '/'}


def tool(name):
    path = shutil.which(name, path=PATH)
    if not path:
        raise Missing(f'no program {name}: scripts/setup check installs it')
    return path


def output(*command, env=ENV, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=env, check=False, **more)
    if done.returncode:
        raise Missing(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def kernel_package(package, env):
    """Returns the package with the release in its name that `package` depends on; None: unknown to
    apt."""
    text = subprocess.run(['apt-cache', 'depends', package], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, env=env, check=False).stdout
    found = re.search(r'Depends: (linux-image-[0-9]\S+)', text)
    return found.group(1) if found else None


def kernel(folder, package, update, env=ENV):
    """Returns (release, folder of the unpacked package). Downloads the package once.

    Calls `update` if apt does not know the package. `env` is apt's environment.
    """
    kept = [d for d in os.listdir(folder) if d.startswith('linux-image-')]
    if kept:
        name = max(kept)
        return name.removeprefix('linux-image-'), os.path.join(folder, name)
    name = kernel_package(package, env)
    if not name:
        update()
        name = kernel_package(package, env)
    if not name:
        raise Missing(f'no package {package} in reach of apt-get')
    release = name.removeprefix('linux-image-')
    scratch = os.path.join(folder, 'unpacking')
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    output('apt-get', '-q', 'download', name, env=env, cwd=scratch)
    deb = next(f for f in os.listdir(scratch) if f.endswith('.deb'))
    output('dpkg-deb', '-x', deb, '.', cwd=scratch)
    os.unlink(os.path.join(scratch, deb))
    # Debian 13: the modules are in usr/lib, for depmod in lib
    if not os.path.exists(os.path.join(scratch, 'lib')):
        os.symlink('usr/lib', os.path.join(scratch, 'lib'))
    output(tool('depmod'), '-b', scratch, release)
    os.rename(scratch, os.path.join(folder, name))
    return release, os.path.join(folder, name)


def modules(tree, release, names):
    """Returns {path in the guest: file here} of modules, their dependencies and their index.

    Modules built into the kernel have no file.
    """
    base = os.path.join(tree, 'lib/modules', release)
    found = {os.path.join(base, index)
             for index in ('modules.order', 'modules.builtin', 'modules.builtin.modinfo')}
    for module in names:
        for line in output(tool('modprobe'), '-d', tree, '-S', release, '--show-depends',
                           module).splitlines():
            if line.startswith('insmod '):
                found.add(line.split()[1])
    return {f'lib/modules/{release}/{os.path.relpath(file, base)}': file for file in found}


def pack(folder, release, files, shell):
    """Makes FOLDER/initramfs from {path in it: file here}, our init, and a link bin/sh to `shell`.

    Makes it again if one of the files has changed.
    """
    files = dict(files, init=INIT)
    made_of = hashlib.sha256()
    for inside, file in sorted(files.items()) + [('', __file__)]:
        stat = os.stat(file)
        made_of.update(f'{inside} {file} {stat.st_size} {stat.st_mtime_ns}\n'.encode())
    image, stamp = os.path.join(folder, 'initramfs'), os.path.join(folder, 'initramfs.of')
    if os.path.exists(image) and os.path.exists(stamp) and open(
            stamp, encoding='ascii').read() == made_of.hexdigest():
        return image
    root = os.path.join(folder, 'root')
    shutil.rmtree(root, ignore_errors=True)
    for d in ('bin', 'dev', 'proc', 'sys', 'tmp', 'etc', 'run'):
        os.makedirs(os.path.join(root, d))
    os.symlink(shell, os.path.join(root, 'bin/sh'))
    for inside, file in files.items():
        target = os.path.join(root, inside)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(file, target)
    os.chmod(os.path.join(root, 'init'), 0o755)
    output(tool('depmod'), '-b', root, release)
    names = '\n'.join(os.path.relpath(os.path.join(d, f), root) for d, ds, fs in os.walk(root)
                      for f in ds + fs)
    with open(image, 'wb') as f:
        subprocess.run([tool('cpio'), '-o', '-H', 'newc', '-R', '0:0', '--quiet'], cwd=root,
                       input=names.encode(), stdout=f, check=True)
    shutil.rmtree(root)
    with open(stamp, 'w', encoding='ascii') as f:
        f.write(made_of.hexdigest())
    return image
