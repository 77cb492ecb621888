// MXFP4: one exponent byte, 16 bytes of FP4 codes (low nibbles are values 0..15, high nibbles
// 16..31).
#define BLOCK_VALUES 32
#define BLOCK_BYTES 17
#define STAGE_K 256
#define STAGE_BYTES 136
#define STAGE_WORDS (ROWS_ALIGNED ? 9 : 10)
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

// The sign of codes 2i and 2i + 1 (bit 3 of bytes) where a pair has its signs.
INLINE unsigned signs_of(unsigned codes, unsigned i) {
  const unsigned two = codes >> (16 * i);
  return ((two << 12) & 0x8000u) | ((two << 20) & 0x80000000u);
}
INLINE void eight_values(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*,
                         unsigned at, unsigned group, unsigned t, PRIVATE unsigned* pairs) {
  const unsigned block = at + 17 * group, from = block + 1 + 8 * (t & 1);
  const unsigned e = (column[block / 4] >> (8 * (block & 3))) & 255u;
  // Half the E8M0 scale, 2^(e - 128), times doubled magnitudes; e = 0 and 1 are subnormal.
  const float d = as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  const unsigned p = bf16_pair(0.0f, d), q = bf16_pair(times(2.0f, d), times(3.0f, d));
  const unsigned r = bf16_pair(times(4.0f, d), times(6.0f, d));
  const unsigned s = bf16_pair(times(8.0f, d), times(12.0f, d));
  const unsigned a = word_at(column, from) >> (4 * (t / 2));
  const unsigned b = word_at(column, from + 4) >> (4 * (t / 2));
  choose_eight(pick_bytes(p, q, 0x6420u), pick_bytes(r, s, 0x6420u),
               pick_bytes(p, q, 0x7531u), pick_bytes(r, s, 0x7531u), a & 0x07070707u,
               b & 0x07070707u, pairs);
  UNROLL for (unsigned i = 0; i < 2; i++) {
    pairs[i] ^= signs_of(a, i);
    pairs[2 + i] ^= signs_of(b, i);
  }
}
