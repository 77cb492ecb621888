// MXFP4: one exponent byte, 16 bytes of FP4 codes (low nibbles are values 0..15, high nibbles
// 16..31). A stage is 256 values of a row.
#define STAGE_K 256
#define STAGE_BYTES 136
#define STAGE_WORDS 10
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 2
#endif
#ifndef X_AHEAD
#define X_AHEAD 0
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_ZIPPED
#define HAS_SCALE 1
#define HAS_MINIMUM 0
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE unsigned byte_of(SHARED_PTR const unsigned* column, unsigned at) {
  return (column[at / 4] >> (8 * (at & 3))) & 255u;
}
IN_REGISTER(upper_small, 0x40403f00u);
IN_REGISTER(upper_large, 0x41414040u);
IN_REGISTER(lower_small, 0x40008000u);
IN_REGISTER(lower_large, 0x4000c080u);

// Doubled magnitudes 0 1 2 3 4 6 8 12 of four codes: the upper and the lower bytes of bf16.
INLINE unsigned upper_bytes(unsigned pick) {
  return pick_bytes(upper_small, upper_large, pick);
}
INLINE unsigned lower_bytes(unsigned pick) {
  return pick_bytes(lower_small, lower_large, pick);
}
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned at,
                   unsigned group, unsigned t, PRIVATE unsigned* w) {
  const unsigned from = at + 17 * group + 1 + 4 * t;
  const unsigned v = shift_pair(column[from / 4], column[from / 4 + 1], 8 * (from & 3));
  const unsigned pick = v & 0x77777777u;
  const unsigned upper = upper_bytes(pick), lower = lower_bytes(pick);
  const unsigned upper_next = upper_bytes(pick >> 16), lower_next = lower_bytes(pick >> 16);
  w[0] = pick_bytes(lower, upper, 0x5140u) | ((v << 12) & 0x8000u) | ((v << 24) & 0x80000000u);
  w[1] = pick_bytes(lower, upper, 0x7362u) | ((v << 4) & 0x8000u) | ((v << 16) & 0x80000000u);
  w[2] = pick_bytes(lower_next, upper_next, 0x5140u) | ((v >> 4) & 0x8000u) |
         ((v << 8) & 0x80000000u);
  w[3] = pick_bytes(lower_next, upper_next, 0x7362u) | ((v >> 12) & 0x8000u) |
         (v & 0x80000000u);
}
// Half the E8M0 scale: 2^(e - 128); e = 0 and 1 are subnormal floats.
INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float*) {
  const unsigned e = byte_of(column, at + 17 * group);
  d[0] = as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
