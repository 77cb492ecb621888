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
#define N_PARTS 1
#define HAS_MINIMUM 0
#define TABLE_WORDS 384  // 256 grid rows, then 128 rows of signs; a nibble a value

// IQ2_TABLE: its words, made by ds4chat/ops/qmatmul.py.
CONSTANT_TABLE unsigned iq2_table[TABLE_WORDS] = {IQ2_TABLE};

INLINE void load_tables(SHARED_PTR unsigned* table, unsigned who, unsigned n_threads) {
  for (unsigned i = who; i < TABLE_WORDS; i += n_threads) table[i] = iq2_table[i];
}

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
// Signs of a lane's eight by counting instead of by the table: 0 to 2 of its two columns.
#ifndef SIGNS_COUNTED
#define SIGNS_COUNTED 0
#endif
// The same nibbles as the table's: bit 2 of nibble i for bit i of the seven, the eighth makes
// their number even.
INLINE unsigned counted_signs(unsigned rest, unsigned t) {
  const unsigned seven = (rest >> (7 * t)) & 127u;
  const unsigned code = seven | ((ones_in(seven) << 7) & 128u);
  const unsigned fours = (code * 0x1001u) & 0x000f000fu;
  const unsigned twos = (fours * 0x41u) & 0x03030303u;
  return (twos * 0x24u) & 0x44444444u;
}
INLINE unsigned signs_of(unsigned rest, unsigned t, SHARED_PTR const unsigned* table) {
  const unsigned code = shift_pair(rest, rest, (7 * t + 30) & 31) & 0x1fcu;  // times four
  return *(SHARED_PTR const unsigned*)((SHARED_PTR const byte_t*)(table + 256) + code);
}

IN_REGISTER(from_2048, 0x45000000u);
// (0.5 + s) / 4 of the whole scale; with the bits of 2048 the four of s make the float 2048 + s.
INLINE float scale_of(unsigned whole_bits, unsigned s) {
  const float whole = half_value(whole_bits);
  return fused(times(whole, 0.25f), as_float((s & 0xf000u) | from_2048), times(whole, -511.875f));
}

#if ROWS_ALIGNED && GROUPS_AT_ONCE == 16
// A stage of two blocks begins at a whole word: d and the indices of group 0 share word 0, and so
// on by halves; the second block's d stands beside the last half of the first, its other words
// are whole. Neighbours share the words that a compiler keeps.
INLINE SHARED_PTR const unsigned* words_at(SHARED_PTR const unsigned* column, unsigned at) {
  return (SHARED_PTR const unsigned*)((SHARED_PTR const byte_t*)column + at);
}
INLINE unsigned index_of(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                         unsigned t) {
  SHARED_PTR const unsigned* w = words_at(column, at) + 2 * group;
  return group < 8 ? pick_bytes(w[0], w[1], 2 + t) & 255u : ((SHARED_PTR const byte_t*)(w + 1))[t];
}
INLINE unsigned rest_of(SHARED_PTR const unsigned* column, unsigned at, unsigned group) {
  SHARED_PTR const unsigned* w = words_at(column, at) + 2 * group;
  return group < 8 ? pick_bytes(w[1], w[2], 0x5432u) : w[2];
}
INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float*) {
  SHARED_PTR const unsigned* w = words_at(column, at);
  const unsigned d_bits = group < 8 ? pick_bytes(w[0], 0u, 0x4410u) : pick_bytes(w[16], 0u, 0x4432u);
  const unsigned last = group < 8 ? w[2 * group + 2] : pick_bytes(w[2 * group + 2], 0u, 0x4432u);
  d[0] = scale_of(d_bits, last);
}
#else
// Rows begin at even bytes: the word with signs and scale is read in halves.
INLINE unsigned half_at(SHARED_PTR const byte_t* bytes) {
  return *(SHARED_PTR const half_bits*)bytes;
}
INLINE SHARED_PTR const byte_t* block_of(SHARED_PTR const unsigned* column, unsigned at,
                                         unsigned group) {
  return (SHARED_PTR const byte_t*)column + at + 66 * (group / 8);
}
INLINE unsigned index_of(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                         unsigned t) {
  return block_of(column, at, group)[2 + 8 * (group % 8) + t];
}
INLINE unsigned rest_of(SHARED_PTR const unsigned* column, unsigned at, unsigned group) {
  SHARED_PTR const byte_t* from = block_of(column, at, group) + 6 + 8 * (group % 8);
  return pick_bytes(half_at(from), half_at(from + 2), 0x5410u);
}
INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float*) {
  SHARED_PTR const byte_t* block = block_of(column, at, group);
  d[0] = scale_of(half_at(block), half_at(block + 8 + 8 * (group % 8)));
}
#endif
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned* table,
                   unsigned at, unsigned group, unsigned t, PRIVATE unsigned* w) {
  const unsigned rest = rest_of(column, at, group);
  const unsigned signs = SIGNS_COUNTED > 1 ? counted_signs(rest, t) : signs_of(rest, t, table);
  const unsigned pick = table[index_of(column, at, group, t)] ^ signs;
  magnitudes(pick, w);
  magnitudes(pick >> 16, w + 2);
}
#if SIGNS_COUNTED == 1  // look-ups and arithmetic side by side
#define UNPACK_HIGH unpack_high
INLINE void unpack_high(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned* table,
                        unsigned at, unsigned group, unsigned t, PRIVATE unsigned* w) {
  const unsigned signs = counted_signs(rest_of(column, at, group), t);
  const unsigned pick = table[index_of(column, at, group, t)] ^ signs;
  magnitudes(pick, w);
  magnitudes(pick >> 16, w + 2);
}
#endif
