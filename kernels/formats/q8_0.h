// Q8_0: half d, 32 signed bytes. A stage is 128 values of a row.
#define STAGE_K 128
#define STAGE_BYTES 136
#define STAGE_WORDS 10  // 16-byte words that hold a stage wherever it begins
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 4
#endif
#ifndef X_AHEAD
#define X_AHEAD 1
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_CROSSED
#define HAS_SCALE 1
#define HAS_MINIMUM 0
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

IN_REGISTER(from_128, 0x43004300u);

// Two signed bytes at bits 0..7 and 16..23: 128 + low seven bits, minus 128 or 256.
INLINE unsigned signed_pair(unsigned v) {
  return minus_bf16x2((v & 0x007f007fu) | from_128, (v & 0x00800080u) | from_128);
}
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned at,
                   unsigned group, unsigned t, PRIVATE unsigned* w) {
  const unsigned from = at + 34 * group + 2 + 8 * t, word = from / 4, shift = 8 * (from & 3);
  const unsigned mid = column[word + 1];
  const unsigned a = shift_pair(column[word], mid, shift);
  const unsigned b = shift_pair(mid, column[word + 2], shift);
  w[0] = signed_pair(a);
  w[1] = signed_pair(a >> 8);
  w[2] = signed_pair(b);
  w[3] = signed_pair(b >> 8);
}
INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float*) {
  const unsigned from = at + 34 * group;
  d[0] = half_value((column[from / 4] >> (8 * (from & 2))) & 0xffffu);
}
