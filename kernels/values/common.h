// What the headers of this folder share. Each defines, for one block format: BLOCK_VALUES and
// BLOCK_BYTES; STAGE_K, STAGE_BYTES and STAGE_WORDS, a whole number of blocks and the 16-byte words
// that hold them wherever they begin; TABLE_WORDS and load_tables; and
//   eight_values(column, table, at, group, t, pairs)
// the values 8t .. 8t + 7 of 32 in order, four pairs of bf16: what formats/quants decodes,
// rounded once. `column` holds a row's stage, which begins at its byte `at`.

// Four bytes from any byte on; a half from an even one.
INLINE unsigned word_at(SHARED_PTR const unsigned* column, unsigned at) {
  return shift_pair(column[at / 4], column[at / 4 + 1], 8 * (at & 3));
}
INLINE float half_at(SHARED_PTR const unsigned* column, unsigned at) {
  return half_value((column[at / 4] >> (8 * (at & 2))) & 0xffffu);
}
// Byte i of v as a float: 2^23 + byte, less 2^23.
INLINE float byte_value(unsigned v, unsigned i) {
  return plus(as_float(pick_bytes(v, 0x4b000000u, 0x7440u + i)), -8388608.0f);
}
// Codes 0..7 in the bytes of a, then of b, to values: `low` and `high` are the lower and the
// upper bytes of the bf16 values of codes 0..3, those with `more` of codes 4..7.
INLINE void choose_eight(unsigned low, unsigned more_low, unsigned high, unsigned more_high,
                         unsigned a, unsigned b, PRIVATE unsigned* pairs) {
  const unsigned codes = a | (b << 4);  // nibbles: a0 b0 a1 b1 ...
  UNROLL for (int i = 0; i < 2; i++) {
    const unsigned pick = (codes >> (16 * i)) & 0xffffu;
    const unsigned lower = pick_bytes(low, more_low, pick);
    const unsigned upper = pick_bytes(high, more_high, pick);
    pairs[i] = pick_bytes(lower, upper, 0x6240u);
    pairs[2 + i] = pick_bytes(lower, upper, 0x7351u);
  }
}
