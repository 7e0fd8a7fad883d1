/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the check of a file before it is loaded as a kernel: the input itself, and a small shared
 * object with a kernel, which the input changes and cuts off. The check does not read behind the
 * end of the file. It gives a reason, unless the only fault is that there is no kernel. A file that
 * passes has all bytes that its program headers name.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE	1024
#define PHDRS	64
#define SYMBOLS 256
#define NAMES	384
#define SHDRS	640

/* The file has all bytes that its program headers name. */
static void make(uint8_t *file)
{
	ElfW(Ehdr) h = {.e_type = ET_DYN,
			.e_version = EV_CURRENT,
			.e_phoff = PHDRS,
			.e_shoff = SHDRS,
			.e_ehsize = sizeof(h),
			.e_phentsize = sizeof(ElfW(Phdr)),
			.e_phnum = 2,
			.e_shentsize = sizeof(ElfW(Shdr)),
			.e_shnum = 3};
	ElfW(Phdr)
		p[2] = {{.p_type = PT_LOAD, .p_filesz = SIZE, .p_memsz = SIZE},
			{.p_type = PT_DYNAMIC, .p_offset = NAMES, .p_filesz = 64, .p_memsz = 64}};
	ElfW(Sym)
		s[3] = {{0}, {.st_name = 1, .st_shndx = SHN_UNDEF}, {.st_name = 1, .st_shndx = 1}};
	ElfW(Shdr) sh[3] = {
		{0},
		{.sh_type = SHT_DYNSYM, .sh_offset = SYMBOLS, .sh_size = sizeof(s), .sh_link = 2},
		{.sh_type = SHT_STRTAB, .sh_offset = NAMES, .sh_size = 64}};
	const ElfW(Ehdr) * own;
	Dl_info info;

	if (!dladdr((void *)(uintptr_t)LLVMFuzzerTestOneInput, &info))
		abort();
	own = info.dli_fbase;
	memcpy(h.e_ident, own->e_ident, sizeof(h.e_ident));
	h.e_machine = own->e_machine;
	s[1].st_info = s[2].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
	s[1].st_size = s[2].st_size = sizeof(void *);
	memset(file, 0, SIZE);
	memcpy(file, &h, sizeof(h));
	memcpy(file + PHDRS, p, sizeof(p));
	memcpy(file + SYMBOLS, s, sizeof(s));
	memcpy(file + NAMES + 1, ROOST_KERNEL_SYMBOL, sizeof(ROOST_KERNEL_SYMBOL));
	memcpy(file + SHDRS, sh, sizeof(sh));
}

static void look(const uint8_t *file, size_t n)
{
	uint8_t *exact = malloc(n ? n : 1);
	const char *why = "unset";
	ElfW(Ehdr) h;

	memcpy(exact, file, n);
	if (object_sound(exact, n, &object_kernel, &why)) {
		memcpy(&h, exact, sizeof(h));
		for (unsigned i = 0; i < h.e_phnum; i++) {
			ElfW(Phdr) p;

			memcpy(&p, exact + h.e_phoff + i * sizeof(p), sizeof(p));
			if (p.p_offset > n || p.p_filesz > n - p.p_offset)
				abort();
		}
		if (why)
			abort();
	} else if (why && strlen(why) < 10) {
		abort();
	}
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t file[SIZE];
	const char *why;
	size_t n = SIZE;

	look(data, size);
	make(file);
	if (!object_sound(file, SIZE, &object_kernel, &why))
		abort();
	for (; size >= 3; size -= 3, data += 3) {
		unsigned at = data[0] | (data[1] & 3) << 8;

		if (data[1] & 0x80)
			n = at;
		else
			file[at] = data[2];
	}
	look(file, n);
	return 0;
}
