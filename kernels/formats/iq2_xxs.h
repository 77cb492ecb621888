// IQ2_XXS: half d, then for each 32 values four grid indices and a word with four 7-bit sign
// codes and a 4-bit scale. A stage is 512 values of a row.
#define STAGE_K 512
#define STAGE_BYTES 132
#define STAGE_WORDS 10
#ifndef GROUPS_AT_ONCE
#define GROUPS_AT_ONCE 8
#endif
#define W_LIMBS 1
#define PAIRS PAIRS_NATURAL
#define HAS_SCALE 1
#define N_PARTS 1
#define HAS_MINIMUM 0
#define TABLE_WORDS 384  // 256 grid rows, then 128 rows of signs; a nibble a value

// ggml's grid (format data): 256 rows of 16 bits, two bits a magnitude, lowest first.
CONSTANT_TABLE unsigned iq2_grid[128] = {
    0x00020000u, 0x00080005u, 0x0011000au, 0x00200014u, 0x00280022u, 0x0041002au, 0x00500044u, 0x00610058u,
    0x00800064u, 0x008a0082u, 0x010100a2u, 0x01100104u, 0x01400115u, 0x01980184u, 0x02020200u, 0x02820222u,
    0x04040401u, 0x04210410u, 0x04400424u, 0x04480442u, 0x04810460u, 0x04900484u, 0x050004a4u, 0x05080502u,
    0x05460520u, 0x05800569u, 0x06090591u, 0x06400610u, 0x06a40684u, 0x08050800u, 0x08140808u, 0x08410828u,
    0x08500844u, 0x08880852u, 0x09400904u, 0x0a140a02u, 0x10041001u, 0x10211010u, 0x10601040u, 0x10901084u,
    0x11001095u, 0x11201108u, 0x115a1150u, 0x12241180u, 0x14001245u, 0x14201408u, 0x14491425u, 0x15181480u,
    0x16001562u, 0x18011616u, 0x18101804u, 0x18811840u, 0x19051900u, 0x1a5119a0u, 0x20022000u, 0x2044200au,
    0x20802061u, 0x21292082u, 0x22002148u, 0x24012202u, 0x24102404u, 0x24562440u, 0x25412500u, 0x26902564u,
    0x28202808u, 0x2a442894u, 0x40044001u, 0x40184010u, 0x40244021u, 0x40484040u, 0x40604056u, 0x40844081u,
    0x41004090u, 0x41614120u, 0x41854180u, 0x42104201u, 0x42564248u, 0x44004268u, 0x44204408u, 0x44994480u,
    0x45244512u, 0x48014600u, 0x48104804u, 0x48454840u, 0x49584900u, 0x49824961u, 0x4a904a45u, 0x50085000u,
    0x50195011u, 0x50805020u, 0x51045088u, 0x51a45142u, 0x54905291u, 0x550a5492u, 0x56545601u, 0x58115800u,
    0x58645819u, 0x5a085940u, 0x60106004u, 0x60686040u, 0x61556100u, 0x62606218u, 0x64056400u, 0x65126510u,
    0x68426584u, 0x80028000u, 0x8041800au, 0x81048082u, 0x81408118u, 0x84018211u, 0x84108404u, 0x84408415u,
    0x85008460u, 0x85948546u, 0x86408609u, 0x88028660u, 0x8a118904u, 0x90109004u, 0x90409024u, 0x911690a1u,
    0x92459180u, 0x94229400u, 0x95519444u, 0x99209881u, 0xa050a002u, 0xa109a085u, 0xa418a200u, 0xa904a850u,
};

INLINE unsigned spread_pairs(unsigned v) {  // 16 bits: every two become a nibble
  v = (v | (v << 8)) & 0x00ff00ffu;
  v = (v | (v << 4)) & 0x0f0f0f0fu;
  return (v | (v << 2)) & 0x33333333u;
}
INLINE unsigned sign_nibbles(unsigned code) {  // bit 2 of nibble i: value i is negative
  unsigned parity = code ^ (code >> 4);
  parity ^= parity >> 2;
  parity = (parity ^ (parity >> 1)) & 1u;
  unsigned v = code | (parity << 7);
  v = (v | (v << 12)) & 0x000f000fu;
  v = (v | (v << 6)) & 0x03030303u;
  return ((v | (v << 3)) & 0x11111111u) << 2;
}
INLINE void load_tables(SHARED_PTR unsigned* table, unsigned who, unsigned n_threads) {
  for (unsigned i = who; i < 256; i += n_threads)
    table[i] = spread_pairs((iq2_grid[i / 2] >> (16 * (i & 1))) & 0xffffu);
  for (unsigned i = who; i < 128; i += n_threads) table[256 + i] = sign_nibbles(i);
}

IN_REGISTER(upper_plus, 0x00424141u);
IN_REGISTER(upper_minus, 0x00c2c1c1u);
IN_REGISTER(lower_both, 0x002cc800u);

// Four nibbles to bf16: 8, 25, 43 are 4100, 41c8, 422c; bit 2 takes the negative.
INLINE void magnitudes(unsigned pick, PRIVATE unsigned* w) {
  const unsigned high = pick_bytes(upper_plus, upper_minus, pick);
  const unsigned low = pick_bytes(lower_both, lower_both, pick);
  w[0] = pick_bytes(low, high, 0x5140u);
  w[1] = pick_bytes(low, high, 0x7362u);
}
// Rows begin at even bytes: the word with signs and scale is read in halves.
INLINE unsigned half_at(SHARED_PTR const byte_t* bytes) {
  return *(SHARED_PTR const half_bits*)bytes;
}
INLINE void unpack(SHARED_PTR const unsigned* column, SHARED_PTR const unsigned* table,
                   unsigned at, unsigned group, unsigned t, PRIVATE unsigned* w) {
  SHARED_PTR const byte_t* from =
      (SHARED_PTR const byte_t*)column + at + 66 * (group / 8) + 2 + 8 * (group % 8);
  const unsigned rest = pick_bytes(half_at(from + 4), half_at(from + 6), 0x5410u);
  const unsigned pick = table[from[t]] ^ table[256 + ((rest >> (7 * t)) & 127u)];
  magnitudes(pick, w);
  magnitudes(pick >> 16, w + 2);
}
IN_REGISTER(from_2048, 0x45000000u);

// (0.5 + s) / 4 of the whole scale; with the bits of 2048 the four of s make the float 2048 + s.
INLINE void scales(SHARED_PTR const unsigned* column, unsigned at, unsigned group,
                   PRIVATE float* d, PRIVATE float*) {
  SHARED_PTR const byte_t* block = (SHARED_PTR const byte_t*)column + at + 66 * (group / 8);
  const float whole = half_value(half_at(block));
  const unsigned s = half_at(block + 8 + 8 * (group % 8)) & 0xf000u;
  d[0] = fused(times(whole, 0.25f), as_float(s | from_2048), times(whole, -511.875f));
}
