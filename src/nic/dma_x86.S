/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guarded memory access for x86-64. The functions are leaf functions that do not use the stack.
 * After a fault between dma_text_begin and dma_text_end the handler (dma.c) sets the instruction
 * pointer to dma_fixup, which returns -EFAULT to the caller.
 *
 * x86 keeps stores in order (TSO), except those of string instructions and non-temporal stores. So
 * the copies are plain loops.
 */
	.section .note.GNU-stack,"",@progbits
	.text
	.globl	dma_text_begin, dma_text_end, dma_fixup
	.hidden	dma_text_begin, dma_text_end, dma_fixup

dma_text_begin:

/* Copies a word of \n bytes and advances. */
.macro STEP n
.if \n == 1
	movzbl	(%rsi), %eax
	movb	%al, (%rdi)
.elseif \n == 2
	movzwl	(%rsi), %eax
	movw	%ax, (%rdi)
.elseif \n == 4
	movl	(%rsi), %eax
	movl	%eax, (%rdi)
.elseif \n == 8
	mov	(%rsi), %rax
	mov	%rax, (%rdi)
.endif
	add	$\n, %rsi
	add	$\n, %rdi
.endm

/* Copies the last 64 bytes and more, in words of 8. */
.macro WORDS_OF_8
	mov	%rdx, %rcx
	shr	$5, %rcx
	jz	2f
	.p2align 4
1:	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	mov	8(%rsi), %rax
	mov	%rax, 8(%rdi)
	mov	16(%rsi), %rax
	mov	%rax, 16(%rdi)
	mov	24(%rsi), %rax
	mov	%rax, 24(%rdi)
	add	$32, %rsi
	add	$32, %rdi
	dec	%rcx
	jnz	1b
2:	mov	%edx, %ecx
	and	$24, %ecx
	jz	5f
1:	STEP	8
	sub	$8, %ecx
	jnz	1b
.endm

/*
 * Copies the same bytes in words of 16. A CPU with AVX stores aligned words of 16 atomically (Intel
 * SDM volume 3, 9.1.1; AMD APM volume 2, 7.3.2).
 */
.macro WORDS_OF_16
	cmp	$8, %rdx
	jb	5f
	test	$8, %dil
	jz	2f
	STEP	8
	sub	$8, %rdx
2:	cmp	$64, %rdx
	jb	2f
	.p2align 4
1:	vmovups	(%rsi), %xmm0
	vmovups	16(%rsi), %xmm1
	vmovups	32(%rsi), %xmm2
	vmovups	48(%rsi), %xmm3
	vmovaps	%xmm0, (%rdi)
	vmovaps	%xmm1, 16(%rdi)
	vmovaps	%xmm2, 32(%rdi)
	vmovaps	%xmm3, 48(%rdi)
	sub	$64, %rdx
	jz	9f
	add	$64, %rsi
	add	$64, %rdi
	cmp	$64, %rdx
	jae	1b
2:	test	$32, %dl
	jz	1f
	vmovups	(%rsi), %xmm0
	vmovups	16(%rsi), %xmm1
	vmovaps	%xmm0, (%rdi)
	vmovaps	%xmm1, 16(%rdi)
	add	$32, %rsi
	add	$32, %rdi
1:	test	$16, %dl
	jz	1f
	vmovups	(%rsi), %xmm0
	vmovaps	%xmm0, (%rdi)
	add	$16, %rsi
	add	$16, %rdi
1:	test	$8, %dl
	jz	5f
	STEP	8
.endm

/*
 * Defines the copy function of one vector width; 0: of words only. rdi: dst, rsi: src, rdx: n.
 */
.macro COPY name, vload, vstore, ra, rb, rc, rd, width, leave, words
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 5
\name:
	.cfi_startproc
	cmp	$8, %rdx
	jbe	11f
10:	/* head: up to 7 bytes, until dst is aligned to 8 bytes */
	test	$7, %dil
	jz	2f
	test	$1, %dil
	jz	1f
	STEP	1
	dec	%rdx
1:	test	$2, %dil
	jz	1f
	STEP	2
	sub	$2, %rdx
1:	test	$4, %dil
	jz	2f
	cmp	$4, %rdx
	jb	5f
	STEP	4
	sub	$4, %rdx
2:
.if \width
	/* vectors, while at least 64 bytes stay for the ordered tail */
	cmp	$(4*\width + 64), %rdx
	jb	4f
	.p2align 4
3:	\vload	(%rsi), \ra
	\vload	\width(%rsi), \rb
	\vload	(2*\width)(%rsi), \rc
	\vload	(3*\width)(%rsi), \rd
	\vstore	\ra, (%rdi)
	\vstore	\rb, \width(%rdi)
	\vstore	\rc, (2*\width)(%rdi)
	\vstore	\rd, (3*\width)(%rdi)
	add	$(4*\width), %rsi
	add	$(4*\width), %rdi
	sub	$(4*\width), %rdx
	cmp	$(4*\width + 64), %rdx
	jae	3b
	\leave
.endif
4:	\words
5:	/* up to 7 bytes; dst is aligned to 8 bytes here, unless the whole copy is shorter than 8 */
	test	$7, %dil
	jnz	8f
	test	$4, %dl
	jz	6f
	STEP	4
6:	test	$2, %dl
	jz	7f
	STEP	2
7:	test	$1, %dl
	jz	9f
	movzbl	(%rsi), %eax
	movb	%al, (%rdi)
9:	xor	%eax, %eax
	ret
8:	and	$7, %edx
	jz	9b
1:	STEP	1
	dec	%edx
	jnz	1b
	xor	%eax, %eax
	ret
11:	/* an aligned word, as chains copy it, or less than 8 bytes */
	jb	5b
	test	$7, %dil
	jnz	10b
	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	\name, .-\name
.endm

COPY dma_copy_sse2, movups, movups, %xmm0, %xmm1, %xmm2, %xmm3, 16, nop, WORDS_OF_8
COPY dma_copy_avx, vmovups, vmovups, %ymm0, %ymm1, %ymm2, %ymm3, 32, vzeroupper, WORDS_OF_16
COPY dma_copy_up_words, nop, nop, nop, nop, nop, nop, 0, nop, WORDS_OF_8
COPY dma_copy_up_avx, nop, nop, nop, nop, nop, nop, 0, nop, WORDS_OF_16

/*
 * Copies in any order. rdi: dst, rsi: src, rdx: n. If the copies of both ends of a short run
 * overlap, the shared bytes are copied twice.
 */
	.globl	dma_load_avx
	.hidden	dma_load_avx
	.type	dma_load_avx, @function
	.p2align 5
dma_load_avx:
	.cfi_startproc
	test	$7, %dl		/* otherwise two loads could each have half of a word */
	jnz	dma_copy_avx
	cmp	$64, %rdx
	ja	2f
	cmp	$32, %rdx
	jb	1f
	vmovups	(%rsi), %xmm0
	vmovups	16(%rsi), %xmm1
	vmovups	-32(%rsi, %rdx), %xmm2
	vmovups	-16(%rsi, %rdx), %xmm3
	vmovups	%xmm0, (%rdi)
	vmovups	%xmm1, 16(%rdi)
	vmovups	%xmm2, -32(%rdi, %rdx)
	vmovups	%xmm3, -16(%rdi, %rdx)
	xor	%eax, %eax
	ret
1:	cmp	$16, %rdx
	jb	dma_copy_avx
	vmovups	(%rsi), %xmm0
	vmovups	-16(%rsi, %rdx), %xmm1
	vmovups	%xmm0, (%rdi)
	vmovups	%xmm1, -16(%rdi, %rdx)
	xor	%eax, %eax
	ret
	.p2align 4
3:	vmovups	(%rsi), %ymm0
	vmovups	32(%rsi), %ymm1
	vmovups	64(%rsi), %ymm2
	vmovups	96(%rsi), %ymm3
	vmovups	%ymm0, (%rdi)
	vmovups	%ymm1, 32(%rdi)
	vmovups	%ymm2, 64(%rdi)
	vmovups	%ymm3, 96(%rdi)
	sub	$-128, %rsi
	sub	$-128, %rdi
	add	$-128, %rdx
	cmp	$128, %rdx
	ja	3b
	lea	-128(%rsi, %rdx), %rsi
	lea	-128(%rdi, %rdx), %rdi
	mov	$128, %edx
2:	cmp	$128, %rdx
	ja	3b
	vmovups	(%rsi), %ymm0
	vmovups	32(%rsi), %ymm1
	vmovups	-64(%rsi, %rdx), %ymm2
	vmovups	-32(%rsi, %rdx), %ymm3
	vmovups	%ymm0, (%rdi)
	vmovups	%ymm1, 32(%rdi)
	vmovups	%ymm2, -64(%rdi, %rdx)
	vmovups	%ymm3, -32(%rdi, %rdx)
	vzeroupper
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	dma_load_avx, .-dma_load_avx

/*
 * Copies blocks of 128 bytes and computes their CRC (packet/crc32.h). rdi: dst; rsi: src; rdx: n, a
 * multiple of 128 and at least 256; rcx: the change to the first block on entry, the last block on
 * return; r8: the multipliers.
 */
.macro FOLD acc, at
	vmovdqu	\at(%rsi), %ymm5
	vpclmulqdq $0x00, %ymm4, \acc, %ymm6
	vpclmulqdq $0x11, %ymm4, \acc, \acc
	vmovdqu	%ymm5, \at(%rdi)
	vpxor	%ymm5, %ymm6, %ymm6
	vpxor	%ymm6, \acc, \acc
.endm
	.globl	dma_fold_avx2
	.hidden	dma_fold_avx2
	.type	dma_fold_avx2, @function
	.p2align 5
dma_fold_avx2:
	.cfi_startproc
	vbroadcasti128 (%r8), %ymm4
	vmovdqu	(%rsi), %ymm0
	vmovdqu	32(%rsi), %ymm1
	vmovdqu	64(%rsi), %ymm2
	vmovdqu	96(%rsi), %ymm3
	vmovdqu	%ymm0, (%rdi)
	vmovdqu	%ymm1, 32(%rdi)
	vmovdqu	%ymm2, 64(%rdi)
	vmovdqu	%ymm3, 96(%rdi)
	vpxor	(%rcx), %ymm0, %ymm0
	vpxor	32(%rcx), %ymm1, %ymm1
	vpxor	64(%rcx), %ymm2, %ymm2
	vpxor	96(%rcx), %ymm3, %ymm3
	add	$-128, %rdx
	.p2align 4
1:	sub	$-128, %rsi
	sub	$-128, %rdi
	FOLD	%ymm0, 0
	FOLD	%ymm1, 32
	FOLD	%ymm2, 64
	FOLD	%ymm3, 96
	add	$-128, %rdx
	jnz	1b
	vmovdqu	%ymm0, (%rcx)
	vmovdqu	%ymm1, 32(%rcx)
	vmovdqu	%ymm2, 64(%rcx)
	vmovdqu	%ymm3, 96(%rcx)
	vzeroupper
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	dma_fold_avx2, .-dma_fold_avx2

/*
 * Copies lines of 64 bytes past the cache. rdi: dst, aligned to a line; rsi: src; rdx: n, a
 * multiple of a line. If n is 0, nothing is copied.
 */
.macro STREAM name, vload, vstore, ra, rb, rc, rd, width, leave
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 5
\name:
	.cfi_startproc
	xor	%ecx, %ecx
	cmp	%rdx, %rcx
	je	2f
	.p2align 4
1:	\vload	(%rsi, %rcx), \ra
	\vload	\width(%rsi, %rcx), \rb
.if \width == 16
	\vload	32(%rsi, %rcx), \rc
	\vload	48(%rsi, %rcx), \rd
.endif
	\vstore	\ra, (%rdi, %rcx)
	\vstore	\rb, \width(%rdi, %rcx)
.if \width == 16
	\vstore	\rc, 32(%rdi, %rcx)
	\vstore	\rd, 48(%rdi, %rcx)
.endif
	add	$64, %rcx
	cmp	%rdx, %rcx
	jne	1b
	\leave
2:	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	\name, .-\name
.endm

STREAM dma_stream_sse2, movups, movntps, %xmm0, %xmm1, %xmm2, %xmm3, 16, nop
STREAM dma_stream_avx, vmovups, vmovntps, %ymm0, %ymm1, %ymm2, %ymm3, 32, vzeroupper

	.globl	dma_cmp_swap
	.hidden	dma_cmp_swap
	.type	dma_cmp_swap, @function
	.p2align 4
dma_cmp_swap:			/* rdi addr, rsi compare, rdx swap, rcx old */
	.cfi_startproc
	mov	%rsi, %rax
	lock cmpxchg %rdx, (%rdi)
	mov	%rax, (%rcx)
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	dma_cmp_swap, .-dma_cmp_swap

	.globl	dma_fetch_add
	.hidden	dma_fetch_add
	.type	dma_fetch_add, @function
	.p2align 4
dma_fetch_add:			/* rdi addr, rsi add, rdx old */
	.cfi_startproc
	lock xadd %rsi, (%rdi)
	mov	%rsi, (%rdx)
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	dma_fetch_add, .-dma_fetch_add

dma_text_end:

	.type	dma_fixup, @function
dma_fixup:
	.cfi_startproc
	mov	$-14, %eax	/* -EFAULT */
	ret
	.cfi_endproc
	.size	dma_fixup, .-dma_fixup
