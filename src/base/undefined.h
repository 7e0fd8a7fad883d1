/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * meson.build includes this file first in each file of a build with UBSan by gcc. Undefined
 * behaviour then ends a program by __builtin_trap(). On x86-64 that is ud2, and in a step its
 * SIGILL would end only the step (guard.h). int3 raises SIGTRAP, which Roost does not handle; the
 * trap of arm64 does so anyway. A report has the line of the nop, because SIGTRAP comes after int3.
 */
#ifndef ROOST_BASE_UNDEFINED_H
#define ROOST_BASE_UNDEFINED_H

#if defined(__x86_64__) && !defined(__ASSEMBLER__)
__asm__(".macro ud2\n\tint3\n\tnop\n\t.endm");
#endif

#endif
