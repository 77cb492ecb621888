// IQ2_XXS: half d, then for each 32 values four grid indices and a word with four 7-bit sign
// codes and a 4-bit scale. IQ2_GRID is ggml's grid: 16 bits a row, two bits a magnitude.
#define BLOCK_VALUES 256
#define BLOCK_BYTES 66
#define STAGE_K 512
#define STAGE_BYTES 132
#define STAGE_WORDS (ROWS_ALIGNED ? 9 : 10)
#define TABLE_WORDS 384  // 256 grid rows, then 128 rows of signs; a nibble a value

CONSTANT_TABLE unsigned grid_rows[128] = {IQ2_GRID};

INLINE unsigned spread_pairs(unsigned v) {  // 16 bits: every two become a nibble
  v = (v | (v << 8)) & 0x00ff00ffu;
  v = (v | (v << 4)) & 0x0f0f0f0fu;
  return (v | (v << 2)) & 0x33333333u;
}
INLINE unsigned sign_nibbles(unsigned code) {  // bit 2 of nibble i: value i is negative
  unsigned parity = code ^ (code >> 4);
  parity ^= parity >> 2;
  unsigned v = code | (((parity ^ (parity >> 1)) & 1u) << 7);
  v = (v | (v << 12)) & 0x000f000fu;
  v = (v | (v << 6)) & 0x03030303u;
  return ((v | (v << 3)) & 0x11111111u) << 2;
}
INLINE void load_tables(SHARED_PTR unsigned* table, unsigned who, unsigned n_threads) {
  for (unsigned i = who; i < 256; i += n_threads)
    table[i] = spread_pairs((grid_rows[i / 2] >> (16 * (i & 1))) & 0xffffu);
  for (unsigned i = who; i < 128; i += n_threads) table[256 + i] = sign_nibbles(i);
}

INLINE void eight_values(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned* table,
                         unsigned at, unsigned group, unsigned t, PRIVATE unsigned* pairs) {
  const unsigned block = at + 66 * (group / 8), from = block + 2 + 8 * (group % 8);
  const unsigned rest = word_at(column, from + 4);
  const unsigned index = (word_at(column, from) >> (8 * t)) & 255u;
  const unsigned nibbles = table[index] ^ table[256 + ((rest >> (7 * t)) & 127u)];
  const float d = times(half_at(column, block), plus(static_cast<float>(rest >> 28), 0.5f));
  const unsigned p = bf16_pair(times(2.0f, d), times(6.25f, d));  // d / 4 times 8, 25 and 43
  const unsigned q = bf16_pair(times(10.75f, d), 0.0f);
  const unsigned low = pick_bytes(p, q, 0x6420u), high = pick_bytes(p, q, 0x7531u);
  UNROLL for (int i = 0; i < 2; i++) {
    const unsigned pick = (nibbles >> (16 * i)) & 0xffffu;
    const unsigned lower = pick_bytes(low, low, pick);
    const unsigned upper = pick_bytes(high, high ^ 0x80808080u, pick);
    pairs[2 * i] = pick_bytes(lower, upper, 0x5140u);
    pairs[2 * i + 1] = pick_bytes(lower, upper, 0x7362u);
  }
}
