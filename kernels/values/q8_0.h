// Q8_0: half d, 32 signed bytes.
#define BLOCK_VALUES 32
#define BLOCK_BYTES 34
#define STAGE_K 128
#define STAGE_BYTES 136
#define STAGE_WORDS (ROWS_ALIGNED ? 9 : 10)
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE void eight_values(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*,
                         unsigned at, unsigned group, unsigned t, PRIVATE unsigned* pairs) {
  const unsigned block = at + 34 * group;
  const float d = half_at(column, block);
  UNROLL for (unsigned i = 0; i < 2; i++) {  // a signed byte is the byte ^ 128, less 128
    const unsigned v = word_at(column, block + 2 + 8 * t + 4 * i) ^ 0x80808080u;
    UNROLL for (unsigned j = 0; j < 4; j += 2) {
      const float even = times(d, plus(byte_value(v, j), -128.0f));
      pairs[2 * i + j / 2] = bf16_pair(even, times(d, plus(byte_value(v, j + 1), -128.0f)));
    }
  }
}
