// Q2_K: 16 bytes of 4-bit scale (low) and minimum (high) for 16 values each, 64 bytes of codes
// (of every 32 bytes four planes of 32 values, lowest bits first), halves d and dmin. A stage is
// a block.
//
// Code times scale is at most 45, exact in bf16: scales go into the weights and d alone is left
// for the sums. A lane takes 16 bytes of codes, the t-th 16, so that it needs four scales.
#define STAGE_K 256
#define STAGE_BYTES 84
#define STAGE_WORDS 6
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 4
#endif
#ifndef X_AHEAD
#define X_AHEAD 0
#endif
#define IS_FOLDED 1
#define N_PLANES 4
#define W_LIMBS 1
#define PAIRS PAIRS_NATURAL
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

// Where the lane's 16 values of a plane begin in the block, and which eight of them come first:
// half of the lanes take the other eight, for the sake of the banks of shared memory.
INLINE int plane_at(int plane, unsigned t) {
  return 128 * (int)(t / 2) + 16 * (int)(t % 2) + 32 * plane;
}
INLINE int eight_at(int eight, unsigned t) { return 8 * (eight ^ (int)(t / 2)); }

// The lane's codes: four values of each plane in a word.
INLINE void code_words(SHARED_PTR const unsigned* column, unsigned at, unsigned t,
                       PRIVATE unsigned* codes) {
  UNROLL for (unsigned i = 0; i < 4; i++)
    codes[i] = column[at / 4 + 4 + 4 * t + (i ^ (t & 2))];
}

// Bytes 0x7f - plane. With such a high byte and a low byte s < 16, bf16 is
// (128 + s) 2^(120 - 2 plane).
IN_REGISTER(exponents, 0x7c7d7e7fu);
IN_REGISTER(exponent_0, 0x43u);  // 128 + s

// The lane's scales, times 2^(120 - 2 plane), and its minima, each twice in a word.
INLINE void scale_pairs(SHARED_PTR const unsigned* column, unsigned at, unsigned t,
                        PRIVATE unsigned* scale, PRIVATE unsigned* minimum) {
  const unsigned from = at / 4 + 2 * (t / 2);
  const unsigned all = pick_bytes(column[from], column[from + 1], 0x6420u + 0x1111u * (t & 1));
  const unsigned low = all & 0x0f0f0f0fu, high = (all >> 4) & 0x0f0f0f0fu;
  UNROLL for (unsigned plane = 0; plane < N_PLANES; plane++) {
    scale[plane] = minus_bf16x2(pick_bytes(low, exponents, 0x4040u + 0x1111u * plane),
                                0x7f007f00u - 0x01000100u * plane);
    minimum[plane] = minus_bf16x2(pick_bytes(high, exponent_0, 0x4040u + 0x0101u * plane),
                                  0x43004300u);
  }
}
// Four codes of a plane times scale times 2^-13, in pairs; in plane p they are 4^p times themselves.
INLINE void folded(unsigned codes, int plane, unsigned scale, PRIVATE unsigned* pairs) {
  const unsigned four = codes & (0x03030303u << (2 * plane));
  pairs[0] = times_codes(pick_bytes(four, 0, 0x4140u), scale);
  pairs[1] = times_codes(pick_bytes(four, 0, 0x4342u), scale);
}
// The factors of what `folded` makes, and of the minima.
INLINE void whole_scales(SHARED_PTR const unsigned* column, unsigned at, PRIVATE float* d,
                         PRIVATE float* m) {
  const unsigned both = column[at / 4 + 20];
  *d = times(half_value(both & 0xffffu), 8192.0f);
  *m = half_value(both >> 16);
}
