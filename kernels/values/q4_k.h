// Q4_K: halves d and dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles (of every
// 32 bytes the low nibbles are one group of 32, the high nibbles the next).
#define BLOCK_VALUES 256
#define BLOCK_BYTES 144
#define STAGE_K 256
#define STAGE_BYTES 144
#define STAGE_WORDS 9
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE unsigned byte_of(SHARED_PTR const unsigned* column, unsigned at) {
  return (column[at / 4] >> (8 * (at & 3))) & 255u;
}
INLINE void eight_values(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*,
                         unsigned, unsigned group, unsigned t, PRIVATE unsigned* pairs) {
  const unsigned j = group & 3, both = byte_of(column, 12 + j);
  unsigned s = byte_of(column, 4 + j), low = byte_of(column, 8 + j);
  s = group < 4 ? s & 63u : (both & 15u) | ((s >> 6) << 4);
  low = group < 4 ? low & 63u : (both >> 4) | ((low >> 6) << 4);
  const float d = times(half_value(column[0] & 0xffffu), static_cast<float>(s));
  const float m = times(half_value(column[0] >> 16), static_cast<float>(low));
  UNROLL for (unsigned i = 0; i < 2; i++) {
    const unsigned word = column[4 + 8 * (group / 2) + 2 * t + i];
    const unsigned v = (word >> (4 * (group & 1))) & 0x0f0f0f0fu;
    pairs[2 * i] = bf16_pair(fused(d, byte_value(v, 0), -m), fused(d, byte_value(v, 1), -m));
    pairs[2 * i + 1] =
        bf16_pair(fused(d, byte_value(v, 2), -m), fused(d, byte_value(v, 3), -m));
  }
}
