// F16: 64 values a stage; a value is two bf16 limbs, 8 and at most 3 bits.
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
#define W_LIMBS 2
#define PAIRS PAIRS_NATURAL
#define HAS_SCALE 0
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned,
                   unsigned group, unsigned t, PRIVATE unsigned* w) {
  UNROLL for (int i = 0; i < 4; i++) {
    const unsigned v = column[16 * group + 4 * t + i];
    const float even = half_value(v & 0xffffu), odd = half_value(v >> 16);
    const unsigned a = as_bits(even), b = as_bits(odd);
    w[i] = pick_bytes(a, b, 0x7632u);
    w[4 + i] = pick_bytes(as_bits(even - as_float(a & 0xffff0000u)),
                          as_bits(odd - as_float(b & 0xffff0000u)), 0x7632u);
  }
}
