// The largest of many numbers and where it stands: of equal ones the first. NaN is passed over,
// and told. Places are below 2^24, so a float holds them.
struct Top {
  float value, at, is_broken;
};
INLINE Top no_top() {
  Top t;
  t.value = as_float(0xff800000u);  // a row without numbers has its first place
  t.at = t.is_broken = 0.0f;
  return t;
}
INLINE Top higher(Top a, Top b) {
  Top t = b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
  t.is_broken = a.is_broken > b.is_broken ? a.is_broken : b.is_broken;
  return t;
}
// The highest of a block of 256 threads, the same in each of them.
INLINE Top top_of_block(Top mine, SHARED_PTR float* held, unsigned me) {
  for (unsigned mask = 16; mask; mask /= 2) {
    Top other;
    other.value = from_lane_xor(mine.value, mask);
    other.at = from_lane_xor(mine.at, mask);
    other.is_broken = from_lane_xor(mine.is_broken, mask);
    mine = higher(mine, other);
  }
  if (me % 32 == 0) {
    SHARED_PTR float* to = held + 3 * (me / 32);
    to[0] = mine.value;
    to[1] = mine.at;
    to[2] = mine.is_broken;
  }
  barrier();
  Top all = no_top();
  for (int i = 0; i < 8; i++) {
    Top one;
    one.value = held[3 * i];
    one.at = held[3 * i + 1];
    one.is_broken = held[3 * i + 2];
    all = higher(all, one);
  }
  return all;
}
// The highest of `n` that blocks have left, by 256 threads.
INLINE Top top_of_parts(const GLOBAL float* parts, int n, SHARED_PTR float* held, unsigned me) {
  Top mine = no_top();
  for (int i = (int)me; i < n; i += 256) {
    Top one;
    one.value = parts[3 * i];
    one.at = parts[3 * i + 1];
    one.is_broken = parts[3 * i + 2];
    mine = higher(mine, one);
  }
  return top_of_block(mine, held, me);
}
