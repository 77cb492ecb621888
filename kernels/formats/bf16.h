// BF16: 64 values a stage, as they are.
#define STAGE_K 64
#define STAGE_BYTES 128
#define STAGE_WORDS 8
#define IS_ALIGNED 1
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 2
#endif
#ifndef X_AHEAD
#define X_AHEAD 1
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_NATURAL
#define HAS_SCALE 0
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned,
                   unsigned group, unsigned t, PRIVATE unsigned* w) {
  UNROLL for (int i = 0; i < 4; i++) w[i] = column[16 * group + 4 * t + i];
}
