// Q2_K: 16 bytes of 4-bit scale (low) and minimum (high) for 16 values each, 64 bytes of codes
// (of every 32 bytes four planes of 32 values, lowest bits first), halves d and dmin.
#define BLOCK_VALUES 256
#define BLOCK_BYTES 84
#define STAGE_K 256
#define STAGE_BYTES 84
#define STAGE_WORDS 6
#define TABLE_WORDS 1

INLINE void load_tables(SHARED_PTR unsigned*, unsigned, unsigned) {}

INLINE void eight_values(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned*,
                         unsigned at, unsigned group, unsigned t, PRIVATE unsigned* pairs) {
  const unsigned begin = at / 4, both = column[begin + 20], part = 2 * group + t / 2;
  const unsigned s = column[begin + part / 4] >> (8 * (part & 3));
  const float d = times(half_value(both & 0xffffu), static_cast<float>(s & 15u));
  const float m = times(half_value(both >> 16), static_cast<float>((s >> 4) & 15u));
  const unsigned small = bf16_pair(-m, plus(d, -m));  // the values of codes 0 and 1
  const unsigned large = bf16_pair(fused(d, 2.0f, -m), fused(d, 3.0f, -m));
  const unsigned low = pick_bytes(small, large, 0x6420u);
  const unsigned high = pick_bytes(small, large, 0x7531u);
  const unsigned word = begin + 4 + 8 * (group / 4) + 2 * t, shift = 2 * (group & 3);
  choose_eight(low, low, high, high, (column[word] >> shift) & 0x03030303u,
               (column[word + 1] >> shift) & 0x03030303u, pairs);
}
