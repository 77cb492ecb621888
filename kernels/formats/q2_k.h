// Q2_K: 16 bytes of 4-bit scale (low) and minimum (high) for 16 values each, 64 bytes of codes
// (of every 32 bytes four planes of 32 values, lowest bits first), halves d and dmin. A stage is
// a block. The two scales of a group of 32 belong to its first and second 16 values.
#define STAGE_K 256
#define STAGE_BYTES 84
#define STAGE_WORDS 6
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 4
#endif
#ifndef X_AHEAD
#define X_AHEAD 0
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_QUADS
#define HAS_SCALE 1
#define N_PARTS 2
#define HAS_MINIMUM 1
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

IN_REGISTER(from_4, 0x40804080u);

// A code q as bf16 4 + q; `scales` counts the 4 into the minimum.
INLINE unsigned code_pair(unsigned v) { return (v & 0x00600060u) | from_4; }
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*, unsigned at,
                   unsigned group, unsigned t, PRIVATE unsigned* w) {
  const unsigned word = at / 4 + 4 + 8 * (group / 4) + t, shift = 2 * (group & 3);
  const unsigned a = column[word] >> shift, b = column[word + 4] >> shift;
  w[0] = code_pair(a << 5);
  w[1] = code_pair(a >> 3);
  w[2] = code_pair(b << 5);
  w[3] = code_pair(b >> 3);
}
// A code of four bits at bit `n` of a word, with the exponent that makes it 2^(23 - n) + code.
IN_REGISTER(at_0, 0x4b000000u);
IN_REGISTER(at_4, 0x49000000u);
IN_REGISTER(at_8, 0x47000000u);
IN_REGISTER(at_12, 0x45000000u);

INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float* m) {
  const unsigned both = column[at / 4 + 20];
  const unsigned s = column[at / 4 + group / 2] >> (16 * (group & 1));
  const float whole = half_value(both & 0xffffu), minimum = half_value(both >> 16);
  d[0] = fused(whole, as_float((s & 0xfu) | at_0), times(whole, -8388608.0f));
  d[1] = fused(whole, as_float((s & 0xf00u) | at_8), times(whole, -32768.0f));
  m[0] = fused(minimum, as_float((s & 0xf0u) | at_4), times(minimum, -524288.0f));
  m[1] = fused(minimum, as_float((s & 0xf000u) | at_12), times(minimum, -2048.0f));
  m[0] = fused(4.0f, d[0], m[0]);
  m[1] = fused(4.0f, d[1], m[1]);
}
