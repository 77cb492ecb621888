// F32: 32 values a stage; a value is three bf16 limbs of 8 bits.
#define STAGE_K 32
#define STAGE_BYTES 128
#define STAGE_WORDS 8
#define IS_ALIGNED 1
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 1
#endif
#ifndef X_AHEAD
#define X_AHEAD 1
#endif
#define W_LIMBS 3
#define PAIRS PAIRS_NATURAL
#define HAS_SCALE 0
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned,
                   unsigned, unsigned t, PRIVATE unsigned* w) {
  UNROLL for (int i = 0; i < 4; i++) {
    unsigned a = column[8 * t + 2 * i], b = column[8 * t + 2 * i + 1];
    UNROLL for (int limb = 0; limb < 3; limb++) {
      w[4 * limb + i] = pick_bytes(a, b, 0x7632u);
      a = as_bits(as_float(a) - as_float(a & 0xffff0000u));
      b = as_bits(as_float(b) - as_float(b & 0xffff0000u));
    }
  }
}
