// Which rows chose an expert. `picks` is (rows, n_picks); slots count it row by row. Each
// distinct expert is read once, by whoever stands at its first slot. Works on any pointer type:
// Metal keeps small inputs in another address space.
template <typename P>
INLINE bool is_first(P picks, int slot, int n_experts, unsigned lane) {  // all lanes take part
  const int expert = (int)picks[slot];
  float n_before = 0.0f;
  for (int i = (int)lane; i < slot; i += 32)
    n_before = plus(n_before, (int)picks[i] == expert ? 1.0f : 0.0f);
  for (unsigned mask = 16; mask; mask /= 2)
    n_before = plus(n_before, from_lane_xor(n_before, mask));
  return expert >= 0 && expert < n_experts && n_before == 0.0f;
}
// The first pick of `row` that is `expert`, or -1.
template <typename P>
INLINE int pick_of(P picks, int row, int n_rows, int n_picks, int expert) {
  int found = -1;
  if (row < n_rows)
    for (int p = n_picks - 1; p >= 0; p--)
      if ((int)picks[row * n_picks + p] == expert) found = p;
  return found;
}
