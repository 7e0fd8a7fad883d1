/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guarded memory access for x86-64. Leaf functions that never touch the stack: at a fault anywhere between dma_text_begin
 * and dma_text_end, the handler (dma.c) sets the instruction pointer to dma_fixup, which returns -EFAULT to the caller.
 *
 * x86 keeps stores in order (TSO) unless a string instruction or a non-temporal store made them, hence plain loops.
 */
	.section .note.GNU-stack,"",@progbits
	.text
	.globl	dma_text_begin, dma_text_end, dma_fixup
	.hidden	dma_text_begin, dma_text_end, dma_fixup

dma_text_begin:

/* One copy loop per vector width: rdi dst, rsi src, rdx n. The tail is shared in shape. */
.macro COPY name, vload, vstore, ra, rb, rc, rd, width, leave
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 5
\name:
	.cfi_startproc
	cmp	$8, %rdx
	jb	5f
	/* head: bring dst to 8-byte alignment */
	test	$7, %dil
	jz	2f
	test	$1, %dil
	jz	1f
	movzbl	(%rsi), %eax
	movb	%al, (%rdi)
	inc	%rsi
	inc	%rdi
	dec	%rdx
1:	test	$2, %dil
	jz	1f
	movzwl	(%rsi), %eax
	movw	%ax, (%rdi)
	add	$2, %rsi
	add	$2, %rdi
	sub	$2, %rdx
1:	test	$4, %dil
	jz	2f
	cmp	$4, %rdx
	jb	5f
	movl	(%rsi), %eax
	movl	%eax, (%rdi)
	add	$4, %rsi
	add	$4, %rdi
	sub	$4, %rdx
2:	/* bulk in vectors, as long as at least 64 bytes stay for the ordered tail */
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
4:	/* 8-byte words, four a turn */
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
1:	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	add	$8, %rsi
	add	$8, %rdi
	sub	$8, %ecx
	jnz	1b
5:	/* up to 7 bytes; dst is 8-byte aligned here unless the whole copy is shorter than 8 */
	test	$7, %dil
	jnz	8f
	test	$4, %dl
	jz	6f
	movl	(%rsi), %eax
	movl	%eax, (%rdi)
	add	$4, %rsi
	add	$4, %rdi
6:	test	$2, %dl
	jz	7f
	movzwl	(%rsi), %eax
	movw	%ax, (%rdi)
	add	$2, %rsi
	add	$2, %rdi
7:	test	$1, %dl
	jz	9f
	movzbl	(%rsi), %eax
	movb	%al, (%rdi)
9:	xor	%eax, %eax
	ret
8:	and	$7, %edx
	jz	9b
1:	movzbl	(%rsi), %eax
	movb	%al, (%rdi)
	inc	%rsi
	inc	%rdi
	dec	%edx
	jnz	1b
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	\name, .-\name
.endm

COPY dma_copy_sse2, movups, movups, %xmm0, %xmm1, %xmm2, %xmm3, 16, nop
COPY dma_copy_avx, vmovups, vmovups, %ymm0, %ymm1, %ymm2, %ymm3, 32, vzeroupper

	.globl	dma_load_line
	.hidden	dma_load_line
	.type	dma_load_line, @function
	.p2align 4
dma_load_line:			/* rdi dst, rsi src */
	.cfi_startproc
	movups	(%rsi), %xmm0
	movups	16(%rsi), %xmm1
	movups	32(%rsi), %xmm2
	movups	48(%rsi), %xmm3
	movups	%xmm0, (%rdi)
	movups	%xmm1, 16(%rdi)
	movups	%xmm2, 32(%rdi)
	movups	%xmm3, 48(%rdi)
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	dma_load_line, .-dma_load_line

/* Lines of 64 bytes past the cache: rdi dst, aligned to them, rsi src, rdx n, a multiple of them and not 0 or nothing happens. */
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
