/*
 * cblas_sgemm whose rows do not know each other.
 *
 * C = alpha * op(A) op(B) + beta * C in float32, both orders, all transposes, any strides. Every
 * element is one chain
 *
 *     s = 0;  for k = 0 .. K-1, in this order:  s = fma(op(A)[i][k], op(B)[k][j], s)
 *
 * and nothing else, in every path below. So the bits of an element depend on its row of A, its
 * column of B, alpha, beta and its old value: not on M, N, its place, its neighbours, the order,
 * the transposes or the strides. Appending zeros to K changes no value either. Speculative
 * decoding needs this: a token checked among six must get the logits it would get alone.
 * (Where the CPU has no fused multiply-add, fma means multiply, round, add, round.)
 *
 * The kernels (cpu_sgemm_tiles.h) are built three times, and one build is chosen when the library
 * is loaded: AVX-512, AVX2 with FMA, and what the platform always has (SSE2, NEON). Compile with
 * -ffp-contract=off and never with -ffast-math.
 *
 * One thread on purpose: at the sizes of a small model a second one costs more than it brings.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

enum { ROW_MAJOR = 101, COL_MAJOR = 102, NO_TRANS = 111, TRANS = 112, CONJ_TRANS = 113 };

enum {
    MAX_ROWS = 6,      /* rows of a register tile */
    MAX_WIDTH = 64,    /* columns of a packed panel of B, at most */
    K_BLOCK = 512,     /* rows of a packed panel */
    M_BLOCK = 192,     /* rows of C that share a packed panel */
    PACK_FROM = 24,    /* rows of C from which packing pays */
    FLIP_BLOCK = 64,   /* rows turned at a time, so that the cache lines read are used up */
    PREFETCH_ROWS = 4, /* how far ahead B is asked for */
};

/* A product after order and transposes are resolved: C is row-major, A and B are strided. */
typedef struct {
    ptrdiff_t m, n, k;
    const float *a;
    ptrdiff_t a_row, a_col; /* op(A)[i][k] = a[i * a_row + k * a_col] */
    const float *b;
    ptrdiff_t b_row, b_col; /* op(B)[k][j] = b[k * b_row + j * b_col] */
    float *c;
    ptrdiff_t ldc;
    float alpha, beta;
} Product;

/* Where a tile's sums come from and go to. */
typedef struct {
    const float *from; /* sums so far, rows of MAX_WIDTH floats; NULL: zero */
    float *to;         /* unfinished sums go here; NULL: finish into c */
    float *c;
    ptrdiff_t ldc;
    float alpha, beta;
} Sink;

/* Per-thread buffers: a packed panel of B, and sums that wait for the next block of K. */
static _Thread_local float panel[K_BLOCK * MAX_WIDTH] __attribute__((aligned(64)));
static _Thread_local float pending[M_BLOCK * MAX_WIDTH] __attribute__((aligned(64)));

static uint64_t n_calls;

#if defined(__aarch64__)
#define SPAN 4
#else
#define SPAN 2
#endif
#define NAME(x) x##_base
#define TARGET
#define LANES 4
#include "cpu_sgemm_tiles.h"

#if defined(__x86_64__)
#define SPAN 2
#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#include "cpu_sgemm_tiles.h"

#define SPAN 4
#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f,avx2,fma")))
#define LANES 16
#include "cpu_sgemm_tiles.h"
#endif

typedef void (*Multiply)(const Product *);

static const struct {
    const char *name;
    Multiply multiply;
} builds[] = {
    {"base", multiply_base},
#if defined(__x86_64__)
    {"avx2", multiply_avx2},
    {"avx512", multiply_avx512},
#endif
};

static int chosen;

static int best_build(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") ? 2 : 1;
#else
    return 0;
#endif
}

__attribute__((constructor)) static void choose(void) { chosen = best_build(); }

/* How often cblas_sgemm was called: how a program finds out that its products come here. */
EXPORT uint64_t ds4_sgemm_calls(void) { return __atomic_load_n(&n_calls, __ATOMIC_RELAXED); }

/* The name of the build in use. */
EXPORT const char *ds4_sgemm_level(void) { return builds[chosen].name; }

/* Use the build of that name; 0: this CPU or this library lacks it. For tests. */
EXPORT int ds4_sgemm_use(const char *name) {
    for (int i = 0; i <= best_build(); i++) {
        if (strcmp(name, builds[i].name) == 0) {
            chosen = i;
            return 1;
        }
    }
    return 0;
}

static int is_trans(int t) { return t == TRANS || t == CONJ_TRANS; }

/* The number of the first illegal argument, counted from 1 as the reference does, or 0. */
static int illegal(int order, int ta, int tb, int m, int n, int k, int lda, int ldb, int ldc) {
    const int by_col = order == COL_MAJOR;
    if (order != ROW_MAJOR && !by_col) return 1;
    if (ta != NO_TRANS && !is_trans(ta)) return 2;
    if (tb != NO_TRANS && !is_trans(tb)) return 3;
    if (m < 0) return 4;
    if (n < 0) return 5;
    if (k < 0) return 6;
    const int min_a = is_trans(ta) != by_col ? m : k; /* the contiguous extent of A as stored */
    const int min_b = is_trans(tb) != by_col ? k : n;
    const int min_c = by_col ? m : n;
    if (lda < (min_a > 1 ? min_a : 1)) return 9;
    if (ldb < (min_b > 1 ? min_b : 1)) return 11;
    if (ldc < (min_c > 1 ? min_c : 1)) return 14;
    return 0;
}

/* C = beta * C; beta 0 does not read C. */
static void scale(const Product *p) {
    for (ptrdiff_t i = 0; i < p->m; i++) {
        float *row = p->c + i * p->ldc;
        if (p->beta == 0.0f) {
            memset(row, 0, (size_t)p->n * sizeof(float));
        } else if (p->beta != 1.0f) {
            for (ptrdiff_t j = 0; j < p->n; j++) row[j] *= p->beta;
        }
    }
}

EXPORT void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const float *a, int lda, const float *b, int ldb, float beta, float *c,
                        int ldc) {
    __atomic_fetch_add(&n_calls, 1, __ATOMIC_RELAXED);
    const int bad = illegal(order, trans_a, trans_b, m, n, k, lda, ldb, ldc);
    if (bad) {
        fprintf(stderr, "cblas_sgemm: argument %d is illegal\n", bad);
        return;
    }
    if (m == 0 || n == 0) return;
    const int by_col = order == COL_MAJOR;
    const int a_flip = is_trans(trans_a) != by_col, b_flip = is_trans(trans_b) != by_col;
    Product p = {
        .m = m, .n = n, .k = k, .c = c, .ldc = ldc, .alpha = alpha, .beta = beta,
        .a = a, .a_row = a_flip ? 1 : lda, .a_col = a_flip ? lda : 1,
        .b = b, .b_row = b_flip ? 1 : ldb, .b_col = b_flip ? ldb : 1,
    };
    if (by_col) { /* a column-major C is a row-major C': C' = op(B)' op(A)' */
        const Product q = p;
        p.m = n, p.n = m;
        p.a = q.b, p.a_row = q.b_col, p.a_col = q.b_row;
        p.b = q.a, p.b_row = q.a_col, p.b_col = q.a_row;
    }
    if (p.n == 1) p.b_col = 1; /* no next column: any stride is as good */
    if (k == 0 || alpha == 0.0f) {
        scale(&p);
        return;
    }
    builds[chosen].multiply(&p);
}
