// Products of a tile of 16 weight rows ("columns" of the output) with up to 8 rows of x.
//
// A simdgroup walks a row of weights in stages of STAGE_K values. The bytes of a stage are
// copied as they lie in the file, 16 at a time, into a buffer of the simdgroup; then each lane
// unpacks eight values of two columns at once into the operands of `multiply_tiles`. Lane
// (g, t) = (lane / 4, lane % 4) takes the t-th eight of every 32 values of columns g and g + 8:
// which k stands in which slot is free as long as x is laid out alike.
//
// Bits: rows of x are columns of the matrix unit, so a row's sums depend on that row alone.
// The format's header defines STAGE_*, GROUPS_AT_ONCE (unrolled), W_LIMBS, PAIRS, HAS_SCALE,
// HAS_MINIMUM, TABLE_WORDS, load_tables, unpack, scales, and X_AHEAD: whether x is asked for a
// turn before it is used; or IS_FOLDED: `folded.h` then adds a stage. Values are split into bf16 "limbs" whose sum is exact: one for
// quantised weights and for bf16, two for f16, three for f32.

#ifndef COLUMNS
#define COLUMNS TILE  // or 8: half as many columns a simdgroup, for matrices with few of them
#endif
#ifndef BUFFERS
#define BUFFERS 2  // stages of a simdgroup on their way or at work
#endif
#define TILE 16
#define MAX_ROWS 8
#define N_ACC (COLUMNS / 4)
#define N_GROUPS (STAGE_K / 32)
#define STAGE_STRIDE (STAGE_WORDS | 1)  // odd: eight columns then lie in different banks
#define COLUMN_WORDS (4 * STAGE_STRIDE)
#define STAGE_VECTORS (COLUMNS * STAGE_STRIDE)
#define WALK_VECTORS (BUFFERS * STAGE_VECTORS)

// Ask for one 16-byte word of a stage: `begin` is where the stage begins in the file, `n_bytes`
// how much of it the row has. What the row lacks becomes zero.
INLINE void fetch_word(SHARED_PTR uint4* stage, const GLOBAL byte_t* w, wide begin,
                       int n_bytes, unsigned row, unsigned word) {
  const int offset = (int)(begin & 15), left = offset + n_bytes - (int)(16 * word);
  copy16(stage + row * STAGE_STRIDE + word, w, begin - offset + 16 * word,
         left < 0 ? 0 : left > 16 ? 16 : left);
}
// How many of a tile's columns there are.
INLINE int live_columns(wide first, wide end) {
  return end - first < COLUMNS ? (int)(end - first) : COLUMNS;
}
// Ask for the stage that begins `from` bytes into each of `n_live` rows, of which the first is at
// byte `base`: eight lanes a row for the first eight words, two lanes a row for the other two.
INLINE void fetch_stage(SHARED_PTR uint4* stage, const GLOBAL byte_t* w, wide row_bytes,
                        wide base, int n_live, int from, unsigned lane) {
#if ROWS_ALIGNED  // every row begins and ends at a multiple of 16 bytes: words are whole
#if IS_ALIGNED
  const int begin = from;
#else
  const int begin = from & ~15;
#endif
#if WHOLE_STAGES && 16 * (STAGE_WORDS - 1) < STAGE_BYTES  // all words wherever it begins
  const int stop = 16 * STAGE_WORDS;
#else
  const int rest = (int)row_bytes - begin, wanted = from - begin + STAGE_BYTES;
  const int stop = rest < wanted ? rest : wanted;
#endif
  const int row = (int)lane / 8, word = (int)lane % 8;
  if (STAGE_WORDS >= 8 || word < STAGE_WORDS) {
    const int n_valid = 16 * word < stop ? 16 : 0;
    wide at = base + begin + (row * (int)row_bytes + 16 * word);
    UNROLL for (int i = 0; i < COLUMNS / 4; i++) {
      copy16(stage + (row + 4 * i) * STAGE_STRIDE + word, w, at,
             row + 4 * i < n_live ? n_valid : 0);
      at += 4 * row_bytes;
    }
  }
  if (STAGE_WORDS > 8) {
    const int last = (int)lane / 2, beyond = 8 + (int)lane % 2;
    if (beyond < STAGE_WORDS && last < COLUMNS)
      copy16(stage + last * STAGE_STRIDE + beyond, w,
             base + begin + (last * (int)row_bytes + 16 * beyond),
             last < n_live && 16 * beyond < stop ? 16 : 0);
  }
#else
  const int rest = (int)row_bytes - from, n_bytes = rest < STAGE_BYTES ? rest : STAGE_BYTES;
  if (STAGE_WORDS >= 8 || lane % 8 < STAGE_WORDS) {
    UNROLL for (unsigned i = 0; i < COLUMNS / 4; i++) {
      const unsigned row = lane / 8 + 4 * i;
      fetch_word(stage, w, base + row * row_bytes + from,
                 (int)row < n_live ? n_bytes : -16, row, lane % 8);
    }
  }
  if (STAGE_WORDS > 8 && lane % 2 + 8 < STAGE_WORDS && lane / 2 < COLUMNS) {
    const unsigned last = lane / 2;
    fetch_word(stage, w, base + last * row_bytes + from,
               (int)last < n_live ? n_bytes : -16, last, 8 + lane % 2);
  }
#endif
}

// The pairs of eight values p = (0,1) (2,3) (4,5) (6,7) in the format's order.
INLINE void order_pairs(PRIVATE const unsigned* p, PRIVATE unsigned* b) {
#if PAIRS == PAIRS_NATURAL
  for (int i = 0; i < 4; i++) b[i] = p[i];
#elif PAIRS == PAIRS_ZIPPED  // (0,4) (1,5) (2,6) (3,7)
  b[0] = pick_bytes(p[0], p[2], 0x5410u);
  b[1] = pick_bytes(p[0], p[2], 0x7632u);
  b[2] = pick_bytes(p[1], p[3], 0x5410u);
  b[3] = pick_bytes(p[1], p[3], 0x7632u);
#else  // (0,2) (1,3) (4,6) (5,7)
  b[0] = pick_bytes(p[0], p[1], 0x5410u);
  b[1] = pick_bytes(p[0], p[1], 0x7632u);
  b[2] = pick_bytes(p[2], p[3], 0x5410u);
  b[3] = pick_bytes(p[2], p[3], 0x7632u);
#endif
}

// Where the lane's two fours of a group of 32 begin.
#if PAIRS == PAIRS_ZIPPED || PAIRS == PAIRS_QUADS
#define FIRST_FOUR(t) (4 * (t))
#define SECOND_FOUR(t) (16 + 4 * (t))
#else
#define FIRST_FOUR(t) (8 * (t))
#define SECOND_FOUR(t) (8 * (t) + 4)
#endif

#define RAW_WORDS (X_LIMBS == 1 ? 4 : 8)

// The lane's eight values of the 32 at element k of the row of x at `row_at` (negative: no row),
// as they lie; zero beyond n_k.
template <typename T>
INLINE void fetch_x(const GLOBAL T* x, wide row_at, int k, int n_k, unsigned t,
                    PRIVATE unsigned* raw) {
#if WHOLE_STAGES  // K is a multiple of STAGE_K
  const bool is_live = row_at >= 0 && (!X_AHEAD || k < n_k);
#else
  const bool is_live = row_at >= 0 && k + (int)SECOND_FOUR(t) < n_k;
#endif
  const wide at = row_at + k;
  UNROLL for (int i = 0; i < RAW_WORDS; i++) raw[i] = 0;
  if (is_live) {
#if X_LIMBS > 1
    const uint4 low = load16(x, 4 * (at + FIRST_FOUR(t)));
    const uint4 high = load16(x, 4 * (at + SECOND_FOUR(t)));
    raw[0] = low.x; raw[1] = low.y; raw[2] = low.z; raw[3] = low.w;
    raw[4] = high.x; raw[5] = high.y; raw[6] = high.z; raw[7] = high.w;
#elif PAIRS == PAIRS_ZIPPED || PAIRS == PAIRS_QUADS
    const uint2 low = load8(x, 2 * (at + FIRST_FOUR(t)));
    const uint2 high = load8(x, 2 * (at + SECOND_FOUR(t)));
    raw[0] = low.x; raw[1] = low.y; raw[2] = high.x; raw[3] = high.y;
#else
    const uint4 all = load16(x, 2 * (at + FIRST_FOUR(t)));
    raw[0] = all.x; raw[1] = all.y; raw[2] = all.z; raw[3] = all.w;
#endif
  }
}
// The same values in limbs, in the format's order.
INLINE void order_x(PRIVATE const unsigned* raw, PRIVATE unsigned* b) {
#if X_LIMBS == 1
  order_pairs(raw, b);
#else
  unsigned v[8], p[4];
  UNROLL for (int i = 0; i < 8; i++) v[i] = raw[i];
  UNROLL for (int limb = 0; limb < X_LIMBS; limb++) {
    UNROLL for (int i = 0; i < 4; i++) {
      p[i] = pick_bytes(v[2 * i], v[2 * i + 1], 0x7632u);
      v[2 * i] = as_bits(as_float(v[2 * i]) - as_float(v[2 * i] & 0xffff0000u));
      v[2 * i + 1] = as_bits(as_float(v[2 * i + 1]) - as_float(v[2 * i + 1] & 0xffff0000u));
    }
    order_pairs(p, b + 4 * limb);
  }
#endif
}

// c += 16 k-slots: pairs 2 * side and 2 * side + 1 of both columns, all limbs that matter.
INLINE void multiply_limbs(PRIVATE float* c, PRIVATE const unsigned* wa,
                           PRIVATE const unsigned* wb, PRIVATE const unsigned* b, int side) {
  UNROLL for (int i = 0; i < W_LIMBS; i++) {
    UNROLL for (int j = 0; j < X_LIMBS; j++) {
      const int low = 4 * i + 2 * side, from = 4 * j + 2 * side;
      if (i + j < 3)
        multiply_tiles(c, wa[low], wb[low], wa[low + 1], wb[low + 1], b[from], b[from + 1]);
    }
  }
}

// acc += scale * c for the lane's two columns and two rows.
INLINE void add_scaled(PRIVATE float* acc, PRIVATE const float* c, float d_low, float d_high) {
  acc[0] = fused(d_low, c[0], acc[0]);
  acc[1] = fused(d_low, c[1], acc[1]);
#if COLUMNS > 8
  acc[2] = fused(d_high, c[2], acc[2]);
  acc[3] = fused(d_high, c[3], acc[3]);
#endif
}

#if IS_FOLDED
#define NO_ROW 0  // a lane without a row takes the first: nobody reads its sums
#else
#define NO_ROW -1
#define ONES 0x3f803f80u

// Sum of the lane's x over 16 k-slots, as columns of a product with ones.
INLINE void sum_x(PRIVATE float* c, PRIVATE const unsigned* b, int side) {
  UNROLL for (int j = 0; j < X_LIMBS; j++)
    multiply_tiles(c, ONES, ONES, ONES, ONES, b[4 * j + 2 * side], b[4 * j + 2 * side + 1]);
}

// One group of 32 values. `low` and `high` are the lane's columns in the stage.
INLINE void add_group(PRIVATE float* acc, SHARED_PTR const unsigned* low, unsigned low_at,
                      SHARED_PTR const unsigned* high, unsigned high_at,
                      SHARED_PTR const unsigned* table, unsigned group, unsigned t,
                      PRIVATE const unsigned* b) {
  unsigned wa[4 * W_LIMBS], wb[4 * W_LIMBS];
  unpack(low, table, low_at, group, t, wa);
#if COLUMNS > 8
  unpack(high, table, high_at, group, t, wb);
#else
  UNROLL for (int i = 0; i < 4 * W_LIMBS; i++) wb[i] = 0;
#endif
#if !HAS_SCALE
  multiply_limbs(acc, wa, wb, b, 0);
  multiply_limbs(acc, wa, wb, b, 1);
#else
  float da, ma, db = 0.0f, mb = 0.0f;
  scales(low, low_at, group, &da, &ma);
#if COLUMNS > 8
  scales(high, high_at, group, &db, &mb);
#endif
  float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  multiply_limbs(c, wa, wb, b, 0);
  multiply_limbs(c, wa, wb, b, 1);
  add_scaled(acc, c, da, db);
#if HAS_MINIMUM
  float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  sum_x(s, b, 0);
  sum_x(s, b, 1);
  add_scaled(acc, s, -ma, -mb);
#endif
#endif
}
#endif

// Where a lane's x comes from: the row at `row_at` (NO_ROW: none) from value k on.
struct Place {
  int row_at;
  int k;
};
// The x of a lane's next GROUPS_AT_ONCE groups: they are asked for one turn before they are used.
#define AHEAD_WORDS (GROUPS_AT_ONCE * RAW_WORDS)
template <typename T>
INLINE void fetch_ahead(const GLOBAL T* x, Place place, int n_k, unsigned t,
                        PRIVATE unsigned* ahead) {
  UNROLL for (int i = 0; i < GROUPS_AT_ONCE; i++)
    fetch_x(x, place.row_at, place.k + 32 * i, n_k, t, ahead + i * RAW_WORDS);
}

// Where in its first vector a column of the stage of `from` bytes into each row begins.
INLINE unsigned column_at(wide base, unsigned column, wide row_bytes, int from) {
#if IS_ALIGNED
  return 0;
#elif ROWS_ALIGNED
  return (unsigned)from & 15u;
#else
  return (unsigned)(base + column * row_bytes + from) & 15u;
#endif
}

#if IS_FOLDED
template <typename T>  // folded.h
INLINE void add_stage(PRIVATE float* acc, SHARED_PTR const unsigned* stage,
                      SHARED_PTR const unsigned* table, wide row_bytes, wide base, int from,
                      const GLOBAL T* x, Place here, Place next, int n_k,
                      PRIVATE unsigned* ahead, unsigned lane);
#else
// acc += the stage of `from` bytes into each row, with the x at `here`, which `ahead` begins;
// afterwards `ahead` begins the x at `next`.
template <typename T>
INLINE void add_stage(PRIVATE float* acc, SHARED_PTR const unsigned* stage,
                      SHARED_PTR const unsigned* table, wide row_bytes, wide base, int from,
                      const GLOBAL T* x, Place here, Place next, int n_k,
                      PRIVATE unsigned* ahead, unsigned lane) {
  const unsigned g = lane / 4, t = lane % 4;
  const unsigned low_at = column_at(base, g, row_bytes, from);
  const unsigned high_at = column_at(base, g + 8, row_bytes, from);
  SHARED_PTR const unsigned* low = stage + g * COLUMN_WORDS;
  SHARED_PTR const unsigned* high = low + 8 * COLUMN_WORDS;
  ROLLED for (int some = 0; some < N_GROUPS; some += GROUPS_AT_ONCE) {
    unsigned raw[AHEAD_WORDS];
#if X_AHEAD
    UNROLL for (int i = 0; i < AHEAD_WORDS; i++) raw[i] = ahead[i];
    here.k += 32 * GROUPS_AT_ONCE;
    const bool is_last = some + GROUPS_AT_ONCE >= N_GROUPS;
    here.row_at = is_last ? next.row_at : here.row_at;
    here.k = is_last ? next.k : here.k;
    fetch_ahead(x, here, n_k, t, ahead);
#else
    fetch_ahead(x, here, n_k, t, raw);
    here.k += 32 * GROUPS_AT_ONCE;
#endif
    UNROLL for (int i = 0; i < GROUPS_AT_ONCE; i++) {
      unsigned b[4 * X_LIMBS];
      order_x(raw + i * RAW_WORDS, b);
      add_group(acc, low, low_at, high, high_at, table, (unsigned)(some + i), t, b);
    }
  }
}
#endif

// Ask for the first stages of a simdgroup that takes those of number part, part + step, ...
INLINE void begin_walk(SHARED_PTR uint4* mine, const GLOBAL byte_t* w, wide row_bytes,
                       wide first, wide end, int part, int step, int n_stages,
                       unsigned lane) {
  UNROLL for (int i = 0; i < BUFFERS - 1; i++) {
    const int stage = part + i * step;
    if (stage < n_stages)
      fetch_stage(mine + i * STAGE_VECTORS, w, row_bytes, first * row_bytes,
                  live_columns(first, end), stage * STAGE_BYTES, lane);
    copies_close();
  }
}
// acc += those stages; `begin_walk` came before. The lane's row of x begins at x_at, if not
// negative.
template <typename T>
INLINE void walk(PRIVATE float* acc, SHARED_PTR uint4* mine, SHARED_PTR const unsigned* table,
                 const GLOBAL byte_t* w, wide row_bytes, wide first, wide end, int part, int step,
                 const GLOBAL T* x, wide x_at, int n_k, unsigned lane) {
  const int n_stages = (n_k + STAGE_K - 1) / STAGE_K;
  int at = 0, free_at = BUFFERS - 1;
  Place here, next;
  here.row_at = next.row_at = x_at < 0 ? NO_ROW : (int)x_at;
  here.k = part * STAGE_K;
  unsigned ahead[AHEAD_WORDS];
#if X_AHEAD
  fetch_ahead(x, here, n_k, lane % 4, ahead);
#endif
  ROLLED for (int stage = part; stage < n_stages; stage += step) {
    const int later = stage + (BUFFERS - 1) * step;
    if (later < n_stages)
      fetch_stage(mine + free_at * STAGE_VECTORS, w, row_bytes, first * row_bytes,
                  live_columns(first, end), later * STAGE_BYTES, lane);
    copies_close();
    copies_wait<BUFFERS - 1>();
    simd_sync();
    here.k = stage * STAGE_K;
    next.k = (stage + step) * STAGE_K;
    add_stage(acc, (SHARED_PTR const unsigned*)(mine + at * STAGE_VECTORS), table, row_bytes,
              first * row_bytes, stage * STAGE_BYTES, x, here, next, n_k, ahead, lane);
    simd_sync();
    at = at + 1 == BUFFERS ? 0 : at + 1;
    free_at = free_at + 1 == BUFFERS ? 0 : free_at + 1;
  }
}
