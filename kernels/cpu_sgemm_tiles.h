/*
 * One build of the kernels of cpu_sgemm.c, which includes this once for each and first defines
 *   NAME(x)  x with the build's suffix
 *   TARGET   the attribute that lets the compiler use the build's instructions
 *   LANES    floats in a vector
 *   SPAN     vectors side by side in a tile of six rows: the sums fill the registers and never
 *            spill (a wrong value costs half the speed)
 * They are undefined again at the end.
 */

typedef float NAME(Vec) __attribute__((vector_size(LANES * 4)));
#define VEC NAME(Vec)

INLINE TARGET VEC NAME(load)(const float *p) {
    VEC v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE TARGET void NAME(store)(float *p, VEC v) { memcpy(p, &v, sizeof v); }

/* Operations that the vector extensions lack: repeat a number, fused multiply-add, and the
 * first n lanes alone (n may be <= 0 or >= LANES; lanes beyond are zero, memory is not read). */
#if LANES == 16
INLINE TARGET VEC NAME(repeat)(float x) { return (VEC)_mm512_set1_ps(x); }
INLINE TARGET VEC NAME(fma)(VEC a, VEC b, VEC c) {
    return (VEC)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
INLINE TARGET __mmask16 NAME(mask)(ptrdiff_t n) {
    return n <= 0 ? 0 : n >= 16 ? 0xFFFF : (__mmask16)((1u << n) - 1);
}
INLINE TARGET VEC NAME(load_some)(const float *p, ptrdiff_t n) {
    return (VEC)_mm512_maskz_loadu_ps(NAME(mask)(n), p);
}
INLINE TARGET void NAME(store_some)(float *p, VEC v, ptrdiff_t n) {
    _mm512_mask_storeu_ps(p, NAME(mask)(n), (__m512)v);
}
#elif LANES == 8
INLINE TARGET VEC NAME(repeat)(float x) { return (VEC)_mm256_set1_ps(x); }
INLINE TARGET VEC NAME(fma)(VEC a, VEC b, VEC c) {
    return (VEC)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
INLINE TARGET __m256i NAME(mask)(ptrdiff_t n) {
    const int live = n <= 0 ? 0 : n >= 8 ? 8 : (int)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(live), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE TARGET VEC NAME(load_some)(const float *p, ptrdiff_t n) {
    return (VEC)_mm256_maskload_ps(p, NAME(mask)(n));
}
INLINE TARGET void NAME(store_some)(float *p, VEC v, ptrdiff_t n) {
    _mm256_maskstore_ps(p, NAME(mask)(n), (__m256)v);
}
#else
INLINE TARGET VEC NAME(repeat)(float x) { return (VEC){x, x, x, x}; }
INLINE TARGET VEC NAME(fma)(VEC a, VEC b, VEC c) {
#if defined(__aarch64__)
    return (VEC)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}
INLINE TARGET VEC NAME(load_some)(const float *p, ptrdiff_t n) {
    if (n >= 4) return NAME(load)(p);
    const float x = n > 0 ? p[0] : 0.0f, y = n > 1 ? p[1] : 0.0f, z = n > 2 ? p[2] : 0.0f;
    return (VEC){x, y, z, 0.0f};
}
INLINE TARGET void NAME(store_some)(float *p, VEC v, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n && i < 4; i++) p[i] = v[i];
}
#endif

/* One tile: `rows` rows by `vecs` vectors, of which `n` columns exist. `b` has unit column
 * stride; the next row of B is `ldb` further. All loops but the one over k have constant bounds:
 * they are unrolled, and `sum` becomes registers. */
INLINE TARGET void NAME(tile)(const int rows, const int vecs, const int is_whole, ptrdiff_t k,
                              const float *a, ptrdiff_t a_row, ptrdiff_t a_col, const float *b,
                              ptrdiff_t ldb, ptrdiff_t n, const Sink *s) {
    VEC sum[MAX_ROWS][4 * SPAN];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) {
            sum[r][v] = s->from ? NAME(load)(s->from + r * MAX_WIDTH + v * LANES) : (VEC){0};
        }
    }
    for (ptrdiff_t q = 0; q < k; q++) {
        VEC factor[MAX_ROWS], x[4 * SPAN];
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) {
            x[v] = is_whole ? NAME(load)(b + v * LANES)
                            : NAME(load_some)(b + v * LANES, n - v * LANES);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            factor[r] = NAME(repeat)(a[r * a_row]);
#pragma GCC unroll 16
            for (int v = 0; v < vecs; v++) sum[r][v] = NAME(fma)(factor[r], x[v], sum[r][v]);
        }
        if (is_whole) { /* rows of B lie far apart: the hardware does not guess the next ones */
#pragma GCC unroll 16
            for (int v = 0; v < vecs; v += 16 / LANES) {
                __builtin_prefetch(b + PREFETCH_ROWS * ldb + v * LANES);
            }
        }
        a += a_col;
        b += ldb;
    }
    if (s->to) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
            for (int v = 0; v < vecs; v++) {
                NAME(store)(s->to + r * MAX_WIDTH + v * LANES, sum[r][v]);
            }
        }
        return;
    }
    const float alpha = s->alpha, beta = s->beta;
    const ptrdiff_t ldc = s->ldc;
    if (alpha != 1.0f) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
            for (int v = 0; v < vecs; v++) sum[r][v] *= NAME(repeat)(alpha);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        float *c = s->c + r * ldc;
        if (beta != 0.0f) {
#pragma GCC unroll 16
            for (int v = 0; v < vecs; v++) {
                const VEC old = is_whole ? NAME(load)(c + v * LANES)
                                         : NAME(load_some)(c + v * LANES, n - v * LANES);
                sum[r][v] += NAME(repeat)(beta) * old;
            }
        }
#pragma GCC unroll 16
        for (int v = 0; v < vecs; v++) {
            if (is_whole) {
                NAME(store)(c + v * LANES, sum[r][v]);
            } else {
                NAME(store_some)(c + v * LANES, sum[r][v], n - v * LANES);
            }
        }
    }
}

typedef void (*NAME(Tile))(ptrdiff_t, const float *, ptrdiff_t, ptrdiff_t, const float *,
                           ptrdiff_t, ptrdiff_t, const Sink *);

#define TILE(rows, vecs, whole)                                                                \
    static TARGET void NAME(tile_##rows##_##vecs##_##whole)(                                   \
        ptrdiff_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_col, const float *b,         \
        ptrdiff_t ldb, ptrdiff_t n, const Sink *s) {                                           \
        NAME(tile)(rows, vecs, whole, k, a, a_row, a_col, b, ldb, n, s);                       \
    }
#define TILES(vecs, whole)                                                                     \
    TILE(1, vecs, whole) TILE(2, vecs, whole) TILE(3, vecs, whole) TILE(4, vecs, whole)        \
    TILE(5, vecs, whole) TILE(6, vecs, whole)
#define ROW_OF(vecs, whole)                                                                    \
    {                                                                                          \
        NAME(tile_1_##vecs##_##whole), NAME(tile_2_##vecs##_##whole),                          \
            NAME(tile_3_##vecs##_##whole), NAME(tile_4_##vecs##_##whole),                      \
            NAME(tile_5_##vecs##_##whole), NAME(tile_6_##vecs##_##whole)                       \
    }

/* Part tiles of 1 .. SPAN vectors; whole ones of SPAN, twice that for up to three rows and four
 * times for one, so that few rows still keep many sums going. */
TILES(1, 0)
TILES(2, 0)
TILE(1, 8, 1)
#if SPAN == 4
TILES(4, 0)
TILES(4, 1)
TILE(2, 8, 1)
TILE(3, 8, 1)
TILE(1, 16, 1)
static const NAME(Tile) NAME(whole)[3][MAX_ROWS] = {
    ROW_OF(4, 1),
    {NAME(tile_1_8_1), NAME(tile_2_8_1), NAME(tile_3_8_1)},
    {NAME(tile_1_16_1)},
};
#else
TILES(2, 1)
TILE(1, 4, 1)
TILE(2, 4, 1)
TILE(3, 4, 1)
static const NAME(Tile) NAME(whole)[3][MAX_ROWS] = {
    ROW_OF(2, 1),
    {NAME(tile_1_4_1), NAME(tile_2_4_1), NAME(tile_3_4_1)},
    {NAME(tile_1_8_1)},
};
#endif
static const NAME(Tile) NAME(part)[][MAX_ROWS] = {
    ROW_OF(1, 0), ROW_OF(2, 0),
#if SPAN == 4
    ROW_OF(4, 0), ROW_OF(4, 0),
#endif
};

/* A tile for `rows` rows and `*n` columns that are left; sets `*n` to what it covers. */
INLINE TARGET NAME(Tile) NAME(pick)(int rows, ptrdiff_t *n) {
    for (int size = rows == 1 ? 2 : rows <= 3 ? 1 : 0; size >= 0; size--) {
        const ptrdiff_t width = ((ptrdiff_t)SPAN << size) * LANES;
        if (*n >= width) {
            *n = width;
            return NAME(whole)[size][rows - 1];
        }
    }
    return NAME(part)[(*n - 1) / LANES][rows - 1];
}

/* Few rows: B is read in place, panel by panel. */
static TARGET void NAME(multiply_few)(const Product *p) {
    const ptrdiff_t n_tiles = (p->m + MAX_ROWS - 1) / MAX_ROWS;
    const int most = (int)((p->m + n_tiles - 1) / n_tiles);
    for (ptrdiff_t j = 0; j < p->n;) {
        ptrdiff_t width = p->n - j;
        NAME(pick)(most, &width);
        for (ptrdiff_t i = 0; i < p->m; i += most) {
            const int rows = p->m - i < most ? (int)(p->m - i) : most;
            const float *a = p->a + i * p->a_row;
            for (ptrdiff_t at = j; at < j + width;) {
                ptrdiff_t n = j + width - at;
                const Sink s = {NULL, NULL, p->c + i * p->ldc + at, p->ldc, p->alpha, p->beta};
                const NAME(Tile) tile = NAME(pick)(rows, &n);
                tile(p->k, a, p->a_row, p->a_col, p->b + at, p->b_row, n, &s);
                at += n;
            }
        }
        j += width;
    }
}

/* Copy 4 columns by 4 rows of a B with unit row stride: `to` gets the rows, `width` apart. */
INLINE TARGET void NAME(flip)(const float *from, ptrdiff_t ld, float *to, ptrdiff_t width) {
    typedef float Four __attribute__((vector_size(16)));
    Four a, b, c, d;
    memcpy(&a, from, 16);
    memcpy(&b, from + ld, 16);
    memcpy(&c, from + 2 * ld, 16);
    memcpy(&d, from + 3 * ld, 16);
#if defined(__clang__)
#define MIX(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#else
    typedef int Index __attribute__((vector_size(16)));
#define MIX(x, y, i, j, k, l) __builtin_shuffle(x, y, (Index){i, j, k, l})
#endif
    const Four ab = MIX(a, b, 0, 4, 1, 5), ab2 = MIX(a, b, 2, 6, 3, 7);
    const Four cd = MIX(c, d, 0, 4, 1, 5), cd2 = MIX(c, d, 2, 6, 3, 7);
    const Four out[4] = {MIX(ab, cd, 0, 1, 4, 5), MIX(ab, cd, 2, 3, 6, 7),
                         MIX(ab2, cd2, 0, 1, 4, 5), MIX(ab2, cd2, 2, 3, 6, 7)};
#undef MIX
    for (int r = 0; r < 4; r++) memcpy(to + r * width, &out[r], 16);
}

/* Copy `k` rows by `n` columns of B into `panel`, rows of SPAN * LANES floats. */
static TARGET void NAME(pack)(const float *b, ptrdiff_t b_row, ptrdiff_t b_col, ptrdiff_t k,
                              ptrdiff_t n) {
    const ptrdiff_t width = SPAN * LANES;
    if (b_col == 1) {
        for (ptrdiff_t q = 0; q < k; q++) {
            memcpy(panel + q * width, b + q * b_row, (size_t)n * sizeof(float));
        }
        return;
    }
    const ptrdiff_t k4 = b_row == 1 ? k & ~(ptrdiff_t)3 : 0, n4 = n & ~(ptrdiff_t)3;
    for (ptrdiff_t q0 = 0; q0 < k4; q0 += FLIP_BLOCK) {
        const ptrdiff_t q1 = k4 - q0 < FLIP_BLOCK ? k4 : q0 + FLIP_BLOCK;
        for (ptrdiff_t j = 0; j < n4; j += 4) {
            for (ptrdiff_t q = q0; q < q1; q += 4) {
                NAME(flip)(b + j * b_col + q, b_col, panel + q * width + j, width);
            }
        }
    }
    for (ptrdiff_t j = 0; j < n; j++) {
        for (ptrdiff_t q = j < n4 ? k4 : 0; q < k; q++) {
            panel[q * width + j] = b[q * b_row + j * b_col];
        }
    }
}

/* Many rows, or a B that has to be turned: panels of B are copied; sums wait between blocks. */
static TARGET void NAME(multiply_many)(const Product *p) {
    const ptrdiff_t width = SPAN * LANES;
    for (ptrdiff_t m0 = 0; m0 < p->m; m0 += M_BLOCK) {
        const ptrdiff_t m1 = p->m - m0 < M_BLOCK ? p->m : m0 + M_BLOCK;
        for (ptrdiff_t j = 0; j < p->n; j += width) {
            const ptrdiff_t n = p->n - j < width ? p->n - j : width;
            for (ptrdiff_t q = 0; q < p->k; q += K_BLOCK) {
                const ptrdiff_t k = p->k - q < K_BLOCK ? p->k - q : K_BLOCK;
                NAME(pack)(p->b + q * p->b_row + j * p->b_col, p->b_row, p->b_col, k, n);
                for (ptrdiff_t i = m0; i < m1; i += MAX_ROWS) {
                    const int rows = m1 - i < MAX_ROWS ? (int)(m1 - i) : MAX_ROWS;
                    float *sums = pending + (i - m0) * MAX_WIDTH;
                    const Sink s = {q ? sums : NULL, q + k < p->k ? sums : NULL,
                                    p->c + i * p->ldc + j, p->ldc, p->alpha, p->beta};
                    const NAME(Tile) tile = n == width
                                                ? NAME(whole)[0][rows - 1]
                                                : NAME(part)[(n - 1) / LANES][rows - 1];
                    tile(k, p->a + i * p->a_row + q * p->a_col, p->a_row, p->a_col, panel, width,
                         n, &s);
                }
            }
        }
    }
}

static TARGET void NAME(multiply)(const Product *p) {
    if (p->b_col == 1 && p->m < PACK_FROM) {
        NAME(multiply_few)(p);
    } else {
        NAME(multiply_many)(p);
    }
}

#undef VEC
#undef TILE
#undef TILES
#undef ROW_OF
#undef SPAN
#undef NAME
#undef TARGET
#undef LANES
