// Stages of 16 rows of blocks in shared memory, as they lie in the file, for eight_values.
#define TILE 16
#define PITCH (STAGE_WORDS | 1)  // vectors from row to row: odd, so that eight rows share no bank
#define COLUMN_WORDS (4 * PITCH)
#define STAGE_VECTORS (TILE * PITCH)

// Ask for the stage that begins `from` bytes into each of the rows first .. first + 15, of
// which n_live are there; what a row lacks becomes zero. All lanes of a simdgroup take part.
INLINE void fetch_panel(SHARED_PTR uint4* stage, const GLOBAL byte_t* w, wide row_bytes,
                        wide first, int n_live, wide from, unsigned lane) {
  const wide rest = row_bytes - from;
  const int n_bytes = rest < STAGE_BYTES ? (int)rest : STAGE_BYTES;
  UNROLL for (unsigned i = lane; i < TILE * STAGE_WORDS; i += 32) {
    const unsigned row = i / STAGE_WORDS, word = i % STAGE_WORDS;
    const wide begin = (first + row) * row_bytes + from;
    const int offset = (int)(begin & 15), left = offset + n_bytes - (int)(16 * word);
    const int n_valid = (int)row < n_live ? left : 0;
    copy16(stage + row * PITCH + word, w, begin - offset + 16 * word,
           n_valid < 0 ? 0 : n_valid > 16 ? 16 : n_valid);
  }
}
// The byte of its column where the stage of a row begins; the same for all rows if ROWS_ALIGNED,
// where rows are multiples of 16 bytes.
INLINE unsigned begin_of(wide row, wide row_bytes, wide from) {
  return (unsigned)((ROWS_ALIGNED ? 0 : row * row_bytes) + from) & 15u;
}
INLINE uint4 no_bits() {
  uint4 v;
  v.x = v.y = v.z = v.w = 0;
  return v;
}
