# SPDX-License-Identifier: BSD-2-Clause
"""Builds the guest's image: Debian's kernel, its rdma_rxe module, and this machine's own RDMA programs.

The kernel package is downloaded and unpacked, never installed. Programs and libraries are those installed here: both ends
of a row run the same perftest. All that is made stays in one folder and is made again only when what it is made of changed.
"""
import hashlib
import os
import platform
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = 'linux-image-amd64'  # the package that depends on the current kernel of the release
TOOLS = ['dash', 'ip', 'rdma', 'tc']  # dash is the shell: busybox's own would take its applets for ip and tc
MODULES = ['virtio_pci', 'virtio_net', 'crc32_pclmul', 'crc32_generic', 'ipv6', 'ib_uverbs', 'rdma_ucm', 'rdma_rxe', 'sch_netem']
# Where this machine's Debian packages put them; sbin is not in every user's PATH.
PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])
# Libraries must be the distribution's own, not what a test run has put in front of them.
ENV = {'PATH': PATH, 'LC_ALL': 'C', 'HOME': '/'}


class Missing(Exception):
    """Something that the guest needs is not to be had here."""


def tool(name):
    path = shutil.which(name, path=PATH)
    if not path:
        raise Missing(f'no program {name}: scripts/setup check installs it')
    return path


def output(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, check=False, **more)
    if done.returncode:
        raise Missing(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def kernel_package():
    """The name of the real package, with the release in it."""
    name = re.compile(r'Depends: (linux-image-[0-9]\S+)')
    found = name.search(subprocess.run(['apt-cache', 'depends', KERNEL], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True, env=ENV, check=False).stdout)
    if not found:
        output('apt-get', '-q', '-o', 'DPkg::Lock::Timeout=300', 'update')
        found = name.search(output('apt-cache', 'depends', KERNEL))
    if not found:
        raise Missing(f'no package {KERNEL} in reach of apt-get')
    return found.group(1)


def kernel(folder):
    """(release, folder of the unpacked package); downloads it once."""
    kept = [d for d in os.listdir(folder) if d.startswith('linux-image-')]
    if kept:
        name = max(kept)
        return name.removeprefix('linux-image-'), os.path.join(folder, name)
    name = kernel_package()
    release = name.removeprefix('linux-image-')
    scratch = os.path.join(folder, 'unpacking')
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    output('apt-get', '-q', 'download', name, cwd=scratch)
    deb = next(f for f in os.listdir(scratch) if f.endswith('.deb'))
    output('dpkg-deb', '-x', deb, '.', cwd=scratch)
    os.unlink(os.path.join(scratch, deb))
    if not os.path.exists(os.path.join(scratch, 'lib')):  # Debian 13: the modules are in usr/lib, for depmod in lib
        os.symlink('usr/lib', os.path.join(scratch, 'lib'))
    output(tool('depmod'), '-b', scratch, release)
    os.rename(scratch, os.path.join(folder, name))
    return release, os.path.join(folder, name)


def modules(tree, release):
    """The files of MODULES and of what they depend on. What is built into the kernel has none."""
    files = set()
    for module in MODULES:
        for line in output(tool('modprobe'), '-d', tree, '-S', release, '--show-depends', module).splitlines():
            if line.startswith('insmod '):
                files.add(line.split()[1])
    return files


def libraries(file):
    """What the dynamic linker would load for it, the linker itself too."""
    text = subprocess.run(['ldd', file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV, check=False).stdout
    return set(re.findall(r'(/\S+) \(0x', text))


def needed_by_threads():
    """The C library opens it when a thread ends by pthread_exit(), as rping's do; no program names it."""
    for line in output('ldconfig', '-p').splitlines():
        if re.match(r'\s*libgcc_s\.so\.1 .*x86-64', line):
            return line.split(' => ')[1]
    raise Missing('no libgcc_s.so.1')


def contents(tree, release, programs):
    """{path in the guest: file here}"""
    # Names as they are linked, contents as they are: libfoo.so.1 is a link, the loader opens what it is called.
    files = {'init': os.path.join(HERE, 'init'), 'bin/busybox': tool('busybox')}
    drivers = '/etc/libibverbs.d/rxe.driver'
    provider = None
    for line in output('ldconfig', '-p').splitlines():
        if re.match(r'\s*libibverbs\.so\.1 .*x86-64', line):
            folder = os.path.join(os.path.dirname(line.split(' => ')[1]), 'libibverbs')
            provider = next((os.path.join(folder, f) for f in os.listdir(folder) if f.startswith('librxe-')), None)
    if not provider or not os.path.exists(drivers):
        raise Missing('no rxe provider of libibverbs (package ibverbs-providers)')
    files[drivers[1:]] = drivers
    files[os.path.realpath(provider)[1:]] = provider
    files[provider[1:]] = provider
    programs = [tool(p) for p in TOOLS + programs]
    for program in programs:
        files['bin/' + os.path.basename(program)] = program
    for binary in programs + [provider]:
        for library in libraries(binary):
            inside = library[1:] if '/ld-linux' in library else 'lib/' + os.path.basename(library)
            files[inside] = library
    files['lib/libgcc_s.so.1'] = needed_by_threads()
    base = os.path.join(tree, 'lib/modules', release)
    for file in modules(tree, release):
        files[f'lib/modules/{release}/{os.path.relpath(file, base)}'] = file
    for index in ('modules.order', 'modules.builtin', 'modules.builtin.modinfo'):
        files[f'lib/modules/{release}/{index}'] = os.path.join(base, index)
    return files


def build(folder, programs):
    """Builds what is not there yet, with these programs in it. (kernel, initial file system), two files."""
    if platform.machine() != 'x86_64':
        raise Missing(f'the guest is made for x86_64 only, this is {platform.machine()}')
    os.makedirs(folder, exist_ok=True)
    release, tree = kernel(folder)
    files = contents(tree, release, programs)
    made_of = hashlib.sha256()
    for file in sorted(files.values()) + [__file__]:
        stat = os.stat(file)
        made_of.update(f'{file} {stat.st_size} {stat.st_mtime_ns}\n'.encode())
    image, stamp = os.path.join(folder, 'initramfs'), os.path.join(folder, 'initramfs.of')
    if not (os.path.exists(image) and os.path.exists(stamp) and open(stamp, encoding='ascii').read() == made_of.hexdigest()):
        root = os.path.join(folder, 'root')
        shutil.rmtree(root, ignore_errors=True)
        for d in ('bin', 'dev', 'proc', 'sys', 'tmp', 'etc', 'run'):
            os.makedirs(os.path.join(root, d))
        os.symlink('dash', os.path.join(root, 'bin/sh'))
        for inside, file in files.items():
            target = os.path.join(root, inside)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(file, target)
        os.chmod(os.path.join(root, 'init'), 0o755)
        output(tool('depmod'), '-b', root, release)
        names = '\n'.join(os.path.relpath(os.path.join(d, f), root) for d, ds, fs in os.walk(root) for f in ds + fs)
        with open(image, 'wb') as f:
            subprocess.run([tool('cpio'), '-o', '-H', 'newc', '-R', '0:0', '--quiet'], cwd=root, input=names.encode(), stdout=f,
                           check=True)
        shutil.rmtree(root)
        with open(stamp, 'w', encoding='ascii') as f:
            f.write(made_of.hexdigest())
    return os.path.join(tree, 'boot', 'vmlinuz-' + release), image
