/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guarded memory access for arm64, like dma_x86.S. The functions are leaf functions that do not use
 * the stack. After a fault between dma_text_begin and dma_text_end the handler (dma.c) sets the
 * program counter to dma_fixup, which returns -EFAULT to the caller.
 *
 * Stores may become visible in any order on this CPU. So the last word of a copy and the bytes
 * behind it, and all words of dma_copy_up(), are store-releases, which are visible after all
 * earlier stores of the thread (Arm ARM, B2.3.7). A later store may overtake a store-release. So a
 * copy begins with a barrier, and two messages become visible in their order, as from a NIC on
 * PCIe.
 *
 * A vector of 16 bytes at a multiple of 8 is moved as two words of 8, each atomically (Arm ARM,
 * Mem[] in J1.1.3).
 */
	.section .note.GNU-stack,"",@progbits
	.text
	.globl	dma_text_begin, dma_text_end, dma_fixup
	.hidden	dma_text_begin, dma_text_end, dma_fixup

.macro BEGIN name
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 5
\name:
	.cfi_startproc
.endm
.macro END name
	.cfi_endproc
	.size	\name, .-\name
.endm

dma_text_begin:

/* Copies up to 7 bytes until dst is aligned to 8 bytes. x2 is at least 8. */
.macro ALIGN_DST
	tbz	x0, #0, 1f
	ldrb	w3, [x1], #1
	strb	w3, [x0], #1
	sub	x2, x2, #1
1:	tbz	x0, #1, 1f
	ldrh	w3, [x1], #2
	strh	w3, [x0], #2
	sub	x2, x2, #2
1:	tbz	x0, #2, 1f
	ldr	w3, [x1], #4
	str	w3, [x0], #4
	sub	x2, x2, #4
1:
.endm

/*
 * Copies the last bytes, and returns. At label 6 dst is aligned to 8 bytes, and up to 7 bytes are
 * left; at label 5 the whole copy is shorter than 8.
 */
.macro COPY_REST
5:	tst	x0, #7
	b.ne	8f
6:	tbz	x2, #2, 1f
	ldr	w3, [x1], #4
	stlr	w3, [x0]
	add	x0, x0, #4
1:	tbz	x2, #1, 1f
	ldrh	w3, [x1], #2
	stlrh	w3, [x0]
	add	x0, x0, #2
1:	tbz	x2, #0, 9f
7:	ldrb	w3, [x1]
	stlrb	w3, [x0]
9:	mov	w0, #0
	ret
8:	cbz	x2, 9b
1:	subs	x2, x2, #1
	b.eq	7b
	ldrb	w3, [x1], #1
	strb	w3, [x0], #1
	b	1b
.endm

/* x0: dst, x1: src, x2: n. Earlier copies are visible before this one. */
BEGIN dma_copy
	dmb	ishst
	cmp	x2, #8
	b.lo	5f
	ALIGN_DST
	/* vectors, while at least a word stays for the end */
	cmp	x2, #72
	b.lo	3f
	.p2align 4
2:	ldp	q0, q1, [x1]
	ldp	q2, q3, [x1, #32]
	stp	q0, q1, [x0]
	stp	q2, q3, [x0, #32]
	add	x1, x1, #64
	add	x0, x0, #64
	sub	x2, x2, #64
	cmp	x2, #72
	b.hs	2b
3:	cmp	x2, #24
	b.lo	4f
	ldr	q0, [x1], #16
	str	q0, [x0], #16
	sub	x2, x2, #16
	b	3b
4:	cmp	x2, #16
	b.lo	4f
	ldr	x3, [x1], #8
	str	x3, [x0], #8
	sub	x2, x2, #8
4:	cmp	x2, #8
	b.lo	6f
	ldr	x3, [x1], #8
	stlr	x3, [x0]
	add	x0, x0, #8
	sub	x2, x2, #8
	b	6f
	COPY_REST
END dma_copy

/* Does the same with a store-release for each word. */
BEGIN dma_copy_up
	dmb	ishst
	cmp	x2, #8
	b.lo	5f
	ALIGN_DST
	.p2align 4
2:	cmp	x2, #8
	b.lo	6f
	ldr	x3, [x1], #8
	stlr	x3, [x0]
	add	x0, x0, #8
	sub	x2, x2, #8
	b	2b
	COPY_REST
END dma_copy_up

/*
 * Copies in any order. x0: dst, x1: src, x2: n. If the copies of both ends overlap, the shared
 * bytes are copied twice.
 */
BEGIN dma_load
	tst	x2, #7		/* otherwise two loads could each have half of a word */
	b.ne	dma_copy
	cmp	x2, #64
	b.hi	2f
	cmp	x2, #32
	b.lo	1f
	add	x3, x1, x2
	add	x4, x0, x2
	ldp	q0, q1, [x1]
	ldp	q2, q3, [x3, #-32]
	stp	q0, q1, [x0]
	stp	q2, q3, [x4, #-32]
	mov	w0, #0
	ret
1:	cmp	x2, #16
	b.lo	dma_copy
	add	x3, x1, x2
	add	x4, x0, x2
	ldr	q0, [x1]
	ldr	q1, [x3, #-16]
	str	q0, [x0]
	str	q1, [x4, #-16]
	mov	w0, #0
	ret
	.p2align 4
2:	ldp	q0, q1, [x1]
	ldp	q2, q3, [x1, #32]
	stp	q0, q1, [x0]
	stp	q2, q3, [x0, #32]
	add	x1, x1, #64
	add	x0, x0, #64
	sub	x2, x2, #64
	cmp	x2, #64
	b.hi	2b
	add	x1, x1, x2
	add	x0, x0, x2
	ldp	q0, q1, [x1, #-64]
	ldp	q2, q3, [x1, #-32]
	stp	q0, q1, [x0, #-64]
	stp	q2, q3, [x0, #-32]
	mov	w0, #0
	ret
END dma_load

/*
 * Loads in order. x0: dst, x1: src, x2: n. Each load-acquire precedes the later loads, and the
 * barrier precedes all later accesses.
 */
BEGIN dma_load_up
	tst	x1, #7
	b.ne	2f
	mov	w5, #8
	.p2align 4
1:	cmp	x2, #8
	b.lo	3f
	ldar	x3, [x1]
	str	x3, [x0], #8
	add	x1, x1, #8
	sub	x2, x2, #8
	subs	w5, w5, #1
	b.ne	1b
	/* the bytes behind the first 64 */
2:	cmp	x2, #32
	b.lo	4f
	ldp	q0, q1, [x1], #32
	stp	q0, q1, [x0], #32
	sub	x2, x2, #32
	b	2b
4:	cmp	x2, #8
	b.lo	3f
	ldr	x3, [x1], #8
	str	x3, [x0], #8
	sub	x2, x2, #8
	b	4b
3:	cbz	x2, 6f
5:	ldrb	w3, [x1], #1
	strb	w3, [x0], #1
	subs	x2, x2, #1
	b.ne	5b
6:	dmb	ishld
	mov	w0, #0
	ret
END dma_load_up

/*
 * Copies blocks of 128 bytes and computes their CRC (packet/crc32.h). x0: dst; x1: src; x2: n, a
 * multiple of 128 and at least 256; x3: the change to the first block on entry, the last block on
 * return; x4: the multipliers. v0 to v7 are the block.
 */
.macro FOLD acc, next
	pmull	v18.1q, v\acc\().1d, v16.1d
	pmull2	v19.1q, v\acc\().2d, v16.2d
	eor	v18.16b, v18.16b, v\next\().16b
	eor	v\acc\().16b, v18.16b, v19.16b
.endm
.macro CHANGE a, b, at
	ldp	q18, q19, [x3, #\at]
	eor	v\a\().16b, v\a\().16b, v18.16b
	eor	v\b\().16b, v\b\().16b, v19.16b
.endm
	.arch_extension crypto
BEGIN dma_fold_pmull
	ldr	q16, [x4]
	ldp	q0, q1, [x1]
	ldp	q2, q3, [x1, #32]
	ldp	q4, q5, [x1, #64]
	ldp	q6, q7, [x1, #96]
	stp	q0, q1, [x0]
	stp	q2, q3, [x0, #32]
	stp	q4, q5, [x0, #64]
	stp	q6, q7, [x0, #96]
	CHANGE	0, 1, 0
	CHANGE	2, 3, 32
	CHANGE	4, 5, 64
	CHANGE	6, 7, 96
	sub	x2, x2, #128
	.p2align 4
1:	add	x1, x1, #128
	add	x0, x0, #128
	ldp	q20, q21, [x1]
	ldp	q22, q23, [x1, #32]
	ldp	q24, q25, [x1, #64]
	ldp	q26, q27, [x1, #96]
	FOLD	0, 20
	FOLD	1, 21
	FOLD	2, 22
	FOLD	3, 23
	stp	q20, q21, [x0]
	stp	q22, q23, [x0, #32]
	FOLD	4, 24
	FOLD	5, 25
	FOLD	6, 26
	FOLD	7, 27
	stp	q24, q25, [x0, #64]
	stp	q26, q27, [x0, #96]
	subs	x2, x2, #128
	b.ne	1b
	stp	q0, q1, [x3]
	stp	q2, q3, [x3, #32]
	stp	q4, q5, [x3, #64]
	stp	q6, q7, [x3, #96]
	mov	w0, #0
	ret
END dma_fold_pmull

/*
 * Copies lines of 64 bytes past the cache. x0: dst, aligned to a line; x1: src; x2: n, a multiple
 * of a line.
 */
BEGIN dma_stream_lines
	cbz	x2, 2f
	.p2align 4
1:	ldp	q0, q1, [x1]
	ldp	q2, q3, [x1, #32]
	stnp	q0, q1, [x0]
	stnp	q2, q3, [x0, #32]
	add	x1, x1, #64
	add	x0, x0, #64
	subs	x2, x2, #64
	b.ne	1b
2:	mov	w0, #0
	ret
END dma_stream_lines

/*
 * Compare and swap, with the atomics of FEAT_LSE and without. x0: addr, x1: compare, x2: swap, x3:
 * old.
 */
	.arch_extension lse
BEGIN dma_cmp_swap_lse
	casal	x1, x2, [x0]
	str	x1, [x3]
	mov	w0, #0
	ret
END dma_cmp_swap_lse

BEGIN dma_cmp_swap_llsc
1:	ldaxr	x4, [x0]
	cmp	x4, x1
	b.ne	2f
	stlxr	w5, x2, [x0]
	cbnz	w5, 1b
2:	clrex
	str	x4, [x3]
	mov	w0, #0
	ret
END dma_cmp_swap_llsc

/* Fetch and add. x0: addr, x1: add, x2: old. */
BEGIN dma_fetch_add_lse
	ldaddal	x1, x3, [x0]
	str	x3, [x2]
	mov	w0, #0
	ret
END dma_fetch_add_lse

BEGIN dma_fetch_add_llsc
1:	ldaxr	x3, [x0]
	add	x4, x3, x1
	stlxr	w5, x4, [x0]
	cbnz	w5, 1b
	str	x3, [x2]
	mov	w0, #0
	ret
END dma_fetch_add_llsc

dma_text_end:

	.type	dma_fixup, @function
dma_fixup:
	.cfi_startproc
	mov	w0, #-14	/* -EFAULT */
	ret
	.cfi_endproc
	.size	dma_fixup, .-dma_fixup
