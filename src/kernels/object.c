/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/object.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"

#define FD_TRIES   64
#define MEMFD_NAME 249 /* bytes of a name: memfd_create(2). A file's name may have 255 */

/* Objects are compiled with these sizes. A change of a size needs a new ABI number, here too. */
_Static_assert(sizeof(void *) != 8 ||
		       (ROOST_KERNEL_ABI == 3 && sizeof(struct roost_call) == 288 &&
			sizeof(struct roost_kernel) == 120 && sizeof(struct roost_grant) == 24),
	       "a change of the kernel interface has a number of its own");

const struct object_symbol object_kernel = {ROOST_KERNEL_SYMBOL, sizeof(void *), "kernel",
					    "ROOST_KERNEL_EXPORT(descriptor)"};
const struct object_symbol object_functions = {ROOST_KV_SYMBOL, sizeof(struct roost_kv_functions),
					       "function", "ROOST_KV_EXPORT(list)"};

static int __attribute__((format(printf, 4, 5)))
refuse(char *why, size_t n, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, n, format, args);
	va_end(args);
	return rc;
}

/* ---- the file ---- */

/* Returns the ELF header of this program, which has the values of this machine. */
static const ElfW(Ehdr) * own_header(void)
{
	Dl_info info;

	return dladdr((void *)(uintptr_t)object_open, &info) ? info.dli_fbase : NULL;
}

static bool inside(uint64_t off, uint64_t len, size_t n)
{
	return off <= n && len <= n - off;
}

/* Checks that segments end within the file; an access behind its end would raise SIGBUS. */
static bool segments_whole(const unsigned char *file, size_t n, const ElfW(Ehdr) * h)
{
	bool loads = false;

	for (unsigned i = 0; i < h->e_phnum; i++) {
		ElfW(Phdr) p;

		memcpy(&p, file + h->e_phoff + i * sizeof(p), sizeof(p));
		if (!inside(p.p_offset, p.p_filesz, n) ||
		    (p.p_type == PT_LOAD && p.p_filesz > p.p_memsz))
			return false;
		loads |= p.p_type == PT_LOAD;
	}
	return loads;
}

static bool section(const unsigned char *file, size_t n, const ElfW(Ehdr) * h, unsigned i,
		    ElfW(Shdr) * out)
{
	if (i >= h->e_shnum)
		return false;
	memcpy(out, file + h->e_shoff + i * sizeof(*out), sizeof(*out));
	return out->sh_type == SHT_NOBITS || inside(out->sh_offset, out->sh_size, n);
}

static bool has_symbol(const unsigned char *file, const ElfW(Shdr) * symbols,
		       const ElfW(Shdr) * names, const struct object_symbol *want)
{
	size_t len = strlen(want->name) + 1;

	for (uint64_t at = 0; at + sizeof(ElfW(Sym)) <= symbols->sh_size; at += sizeof(ElfW(Sym))) {
		ElfW(Sym) s;

		memcpy(&s, file + symbols->sh_offset + at, sizeof(s));
		if (s.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s.st_info) == STT_OBJECT &&
		    s.st_size == want->size && inside(s.st_name, len, names->sh_size) &&
		    !memcmp(file + names->sh_offset + s.st_name, want->name, len))
			return true;
	}
	return false;
}

static bool holds(const unsigned char *file, size_t n, const ElfW(Ehdr) * h,
		  const struct object_symbol *want)
{
	for (unsigned i = 0; i < h->e_shnum; i++) {
		ElfW(Shdr) symbols, names;

		if (section(file, n, h, i, &symbols) && symbols.sh_type == SHT_DYNSYM &&
		    section(file, n, h, symbols.sh_link, &names) && names.sh_type == SHT_STRTAB &&
		    has_symbol(file, &symbols, &names, want))
			return true;
	}
	return false;
}

bool object_sound(const unsigned char *file, size_t n, const struct object_symbol *want,
		  const char **why)
{
	const ElfW(Ehdr) *own = own_header();
	ElfW(Ehdr) h;

	*why = "is no shared object";
	if (n < sizeof(h) || memcmp(file, ELFMAG, SELFMAG))
		return false;
	memcpy(&h, file, sizeof(h));
	if (h.e_type != ET_DYN || h.e_phentsize != sizeof(ElfW(Phdr)) || h.e_version != EV_CURRENT)
		return false;
	*why = "is a shared object for another kind of machine";
	if (!own || memcmp(h.e_ident, own->e_ident, EI_VERSION + 1) ||
	    h.e_machine != own->e_machine)
		return false;
	/* Section headers are at the end, so a file that is still being written lacks them. */
	*why = "is not all of a shared object: is it still being written?";
	if (!inside(h.e_phoff, (uint64_t)h.e_phnum * sizeof(ElfW(Phdr)), n) ||
	    !segments_whole(file, n, &h))
		return false;
	if (h.e_shnum && (h.e_shentsize != sizeof(ElfW(Shdr)) ||
			  !inside(h.e_shoff, (uint64_t)h.e_shnum * sizeof(ElfW(Shdr)), n)))
		return false;
	*why = NULL;
	return holds(file, n, &h, want);
}

/* ---- loading ---- */

/* Makes memory with a descriptor that has the name of the file, as far as it fits. */
static int make_memfd(const char *path)
{
	const char *name = strrchr(path, '/');
	char part[MEMFD_NAME + 1];

	snprintf(part, sizeof(part), "%.*s", MEMFD_NAME, name ? name + 1 : path);
	return memfd_create(part, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* Copies the file to memory that no other process can write. Closes `from` in any case. */
static int copy(int from, const char *path, size_t size, int *out, char *why, size_t why_len)
{
	unsigned char *to = MAP_FAILED;
	size_t at = 0;
	int rc, fd = make_memfd(path);

	if (fd < 0 || ftruncate(fd, (off_t)size) ||
	    (to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		rc = refuse(why, why_len, -errno, "no memory for a copy of %s: %s", path,
			    strerror(errno));
		goto fail;
	}
	while (at < size) {
		ssize_t got = read(from, to + at, size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			rc = got ? -errno : -ENOEXEC;
			refuse(why, why_len, rc, "can't read %s: %s", path,
			       got ? strerror(-rc) : "it became shorter");
			goto fail;
		}
		at += (size_t)got;
	}
	munmap(to, size);
	/* The seals keep the copy unchanged between the check and the loading. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)) {
		rc = refuse(why, why_len, -errno, "can't seal the copy of %s: %s", path,
			    strerror(errno));
		to = MAP_FAILED;
		goto fail;
	}
	*out = fd;
	return 0;
fail:
	if (to != MAP_FAILED)
		munmap(to, size);
	if (fd >= 0)
		sys_close(fd);
	return rc;
}

static int take_file(const char *path, int *out, size_t *size, char *why, size_t why_len)
{
	struct stat st;
	int rc, fd = sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return refuse(why, why_len, fd, "can't open %s: %s", path, strerror(-fd));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		rc = refuse(why, why_len, -ENOEXEC, "%s is no file", path);
	else if (st.st_size <= 0)
		rc = refuse(why, why_len, -ENOEXEC, "%s is empty", path);
	else if (st.st_size > OBJECT_MAX)
		rc = refuse(why, why_len, -EFBIG, "%s is larger than %u MiB", path,
			    OBJECT_MAX >> 20);
	else
		rc = copy(fd, path, *size = (size_t)st.st_size, out, why, why_len);
	sys_close(fd);
	return rc;
}

static int look(int fd, size_t size, const char *path, const struct object_symbol *want, char *why,
		size_t why_len)
{
	unsigned char *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	const char *fault;
	int rc = 0;

	if (file == MAP_FAILED)
		return refuse(why, why_len, -errno, "can't look at %s: %s", path, strerror(errno));
	if (!object_sound(file, size, want, &fault)) {
		if (fault)
			rc = refuse(why, why_len, -ENOEXEC, "%s %s", path, fault);
		else
			rc = refuse(why, why_len, -EINVAL, "%s has no %s in it: %s is missing",
				    path, want->what, want->macro);
	}
	munmap(file, size);
	return rc;
}

/*
 * Finds a file name that the dynamic loader does not know. The loader returns the known object for
 * a known name. Names here are those of descriptors, which are open as long as their objects are
 * loaded. However, an object that cannot be unloaded keeps its name after its descriptor is closed.
 */
static int new_name(int *fd, char *name, size_t n)
{
	for (unsigned i = 0; i < FD_TRIES; i++) {
		void *known;
		int next;

		snprintf(name, n, "/proc/self/fd/%d", *fd);
		known = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
		if (!known)
			return 0;
		dlclose(known);
		next = fcntl(*fd, F_DUPFD_CLOEXEC, *fd + 1);
		if (next < 0)
			return -errno;
		sys_close(*fd);
		*fd = next;
	}
	return -EMFILE;
}

static int load(struct object *o, const char *path, const struct object_symbol *want, char *why,
		size_t why_len)
{
	char name[40];
	int rc = new_name(&o->fd, name, sizeof(name));

	if (rc)
		return refuse(why, why_len, rc, "no descriptor for %s: %s", path, strerror(-rc));
	o->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!o->handle) {
		const char *text = dlerror(), *prefix = text ? strstr(text, name) : NULL;

		if (prefix == text && prefix)
			text += strlen(name) + (text[strlen(name)] == ':') + 1;
		return refuse(why, why_len, -ENOEXEC, "can't load %s: %s", path,
			      text ? text : "no reason");
	}
	o->symbol = dlsym(o->handle, want->name);
	return o->symbol ? 0
			 : refuse(why, why_len, -EINVAL, "%s has no %s in it", path, want->what);
}

static int check_abi(const char *path, uint32_t abi, uint32_t own, const char *what, char *why,
		     size_t why_len)
{
	return abi == own
		       ? 0
		       : refuse(why, why_len, -EPROTO,
				"%s was built for version %u of the %s interface, this is version %u: build it again",
				path, abi, what, own);
}

static int check_kernel(struct object *o, const char *path, char *why, size_t why_len)
{
	o->kernel = *(const struct roost_kernel *const *)o->symbol;
	if (!o->kernel)
		return refuse(why, why_len, -EINVAL, "%s has no kernel in it", path);
	return check_abi(path, o->kernel->abi, ROOST_KERNEL_ABI, "kernel", why, why_len);
}

static int check_functions(struct object *o, const char *path, char *why, size_t why_len)
{
	o->functions = o->symbol;
	return check_abi(path, o->functions->abi, ROOST_KV_FUNCTION_ABI, "function", why, why_len);
}

static int open_with(const char *path, const struct object_symbol *want,
		     int (*check)(struct object *o, const char *path, char *why, size_t why_len),
		     struct object *out, char *why, size_t why_len)
{
	struct object o = {.fd = -1};
	size_t size = 0;
	int rc = take_file(path, &o.fd, &size, why, why_len);

	if (rc)
		return rc;
	rc = look(o.fd, size, path, want, why, why_len);
	if (!rc)
		rc = load(&o, path, want, why, why_len);
	if (!rc)
		rc = check(&o, path, why, why_len);
	if (rc)
		object_close(&o);
	else
		*out = o;
	return rc;
}

int object_open(const char *path, struct object *out, char *why, size_t why_len)
{
	return open_with(path, &object_kernel, check_kernel, out, why, why_len);
}

int object_open_functions(const char *path, struct object *out, char *why, size_t why_len)
{
	return open_with(path, &object_functions, check_functions, out, why, why_len);
}

void object_close(struct object *o)
{
	if (o->handle)
		dlclose(o->handle);
	sys_close(o->fd);
}
