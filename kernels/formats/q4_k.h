// Q4_K: halves d and dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles (of every
// 32 bytes the low nibbles are one group of 32, the high nibbles the next). A stage is a block.
#define STAGE_K 256
#define STAGE_BYTES 144
#define STAGE_WORDS 9
#define IS_ALIGNED 1
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 2
#endif
#ifndef X_AHEAD
#define X_AHEAD 0
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_CROSSED
#define HAS_SCALE 1
#define HAS_MINIMUM 1
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

IN_REGISTER(from_16, 0x41804180u);

// A code q as bf16 16 + q; `scales` counts the 16 into the minimum.
INLINE unsigned code_pair(unsigned v) { return (v & 0x00780078u) | from_16; }
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned,
                   unsigned group, unsigned t, PRIVATE unsigned* w) {
  const unsigned word = 4 + 8 * (group / 2) + 2 * t, shift = 4 * (group & 1);
  const unsigned a = column[word] >> shift, b = column[word + 1] >> shift;
  w[0] = code_pair(a << 3);
  w[1] = code_pair(a >> 5);
  w[2] = code_pair(b << 3);
  w[3] = code_pair(b >> 5);
}
INLINE unsigned byte_of(SHARED_PTR const unsigned* column, unsigned at) {
  return (column[at / 4] >> (8 * (at & 3))) & 255u;
}
INLINE void scales(SHARED_PTR const unsigned* column, unsigned, unsigned group,
                   PRIVATE float* d, PRIVATE float* m) {
  const unsigned j = group & 3, both = byte_of(column, 12 + j);
  unsigned s = byte_of(column, 4 + j), low = byte_of(column, 8 + j);
  s = group < 4 ? s & 63u : (both & 15u) | ((s >> 6) << 4);
  low = group < 4 ? low & 63u : (both >> 4) | ((low >> 6) << 4);
  d[0] = times(half_value(column[0] & 0xffffu), static_cast<float>(s));
  m[0] = fused(half_value(column[0] >> 16), static_cast<float>(low), times(16.0f, d[0]));
}
