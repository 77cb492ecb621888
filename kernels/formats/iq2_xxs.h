// IQ2_XXS: half d, then for each 32 values four grid indices and a word with four 7-bit sign
// codes and a 4-bit scale. A stage is 512 values of a row.
#define STAGE_K 512
#define STAGE_BYTES 132
#define STAGE_WORDS 10
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 8
#endif
#ifndef X_AHEAD
#define X_AHEAD 0
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_NATURAL
#define HAS_SCALE 1
#define HAS_MINIMUM 0
#define TABLE_WORDS 384  // 256 grid rows, then 128 rows of signs; a nibble a value

// IQ2_TABLE: its words, made by ds4chat/ops/qmatmul.py.
CONSTANT_TABLE unsigned iq2_table[TABLE_WORDS] = {IQ2_TABLE};

INLINE void load_tables(SHARED_PTR unsigned* table, unsigned who, unsigned n_threads) {
  for (unsigned i = who; i < TABLE_WORDS; i += n_threads) table[i] = iq2_table[i];
}

// Factors that a compiler does not know are multiplied by in another unit than shifts and
// look-ups of bytes take, of which there are many here.
IN_REGISTER(two_16, 65536u);
IN_REGISTER(four, 4u);
IN_REGISTER(upper_plus, 0x00424141u);
IN_REGISTER(upper_minus, 0x00c2c1c1u);
IN_REGISTER(lower_both, 0x002cc800u);

// Four nibbles to bf16: 8, 25, 43 are 4100, 41c8, 422c; bit 2 takes the negative.
INLINE void magnitudes(unsigned pick, PRIVATE unsigned* w) {
  const unsigned high = pick_bytes(upper_plus, upper_minus, pick);
  const unsigned low = pick_bytes(lower_both, lower_both, pick);
  w[0] = pick_bytes(low, high, 0x5140u);
  w[1] = pick_bytes(low, high, 0x7362u);
}
// Rows begin at even bytes: the word with signs and scale is read in halves.
INLINE unsigned half_at(SHARED_PTR const byte_t* bytes) {
  return *(SHARED_PTR const half_bits*)bytes;
}
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned* table,
                   unsigned at, unsigned group, unsigned t, PRIVATE unsigned* w) {
  SHARED_PTR const byte_t* from =
      (SHARED_PTR const byte_t*)column + at + 66 * (group / 8) + 2 + 8 * (group % 8);
#if ROWS_ALIGNED && GROUPS_AT_ONCE == 16  // the second block of a stage has whole words
  const unsigned rest = group >= 8 ? *(SHARED_PTR const unsigned*)(from + 4)
                                   : half_at(from + 6) * two_16 + half_at(from + 4);
#else
  const unsigned rest = half_at(from + 6) * two_16 + half_at(from + 4);
#endif
  const unsigned code = shift_pair(rest, rest, (7 * t + 30) & 31) & 0x1fcu;  // times four
  SHARED_PTR const byte_t* bytes = (SHARED_PTR const byte_t*)table;
  const unsigned pick = *(SHARED_PTR const unsigned*)(bytes + from[t] * four) ^
                        *(SHARED_PTR const unsigned*)(bytes + 1024 + code);
  magnitudes(pick, w);
  magnitudes(pick >> 16, w + 2);
}
IN_REGISTER(from_2048, 0x45000000u);

// (0.5 + s) / 4 of the whole scale; with the bits of 2048 the four of s make the float 2048 + s.
INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float*) {
  SHARED_PTR const byte_t* block = (SHARED_PTR const byte_t*)column + at + 66 * (group / 8);
  const float whole = half_value(half_at(block));
  const unsigned s = half_at(block + 8 + 8 * (group % 8)) & 0xf000u;
  d[0] = fused(times(whole, 0.25f), as_float(s | from_2048), times(whole, -511.875f));
}
